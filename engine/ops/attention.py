"""Scaled dot product attention: which op does it, by the shapes, the layout and the device.

`flash_attention` does the plain form, `fused_attention` all that a Triton kernel can, and
`torch_attention` the rest; `attention_parts` are smaller ops where none of them can.
"""

from __future__ import annotations

from typing import Any

from ...errors import OnefoldRuntimeError, OnefoldValueError
from ...kernels.select import uses_triton
from ..names import names, register_function
from ..tensor import Tensor
from .attention_decomposition import probabilities, windowed, with_groups
from .attention_shapes import device_type, in_four_dims
from .dropout import dropout_by, next_draw
from .flash_attention import fits, flash_attention
from .fused_attention import fused_attention
from .torch_attention import attention


@register_function
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    window: int | None = None,
) -> Tensor:
    """softmax(query key^T * scale + mask) value, as in torch.

    The shapes are (..., L, E), (..., S, E) and (..., S, Ev).

    `attn_mask` is bool (True: take part) or added to the scores; `scale` defaults to 1 / sqrt(E).
    A `window` leaves query i the keys j with |i - j| < window. Batch, heads, queries and features
    of the value may be split. Dropout drops the same probabilities for every layout. On a GPU there
    is no matrix of scores, except for the gradient of a mask, which is as large as one before it is
    summed, for gradients of gradients, and for heads of more than 256 features. Raises an error
    when shapes do not fit, or for a mask together with `is_causal`.

    Example: `scaled_dot_product_attention(q, k, v, is_causal=True)` with (2, 8, 16, 64) each.
    """
    if not 0.0 <= dropout_p <= 1.0:
        raise OnefoldValueError(
            f"dropout probability has to be between 0 and 1, but got {dropout_p}"
        )
    near = check_window(window)
    if attn_mask is not None and is_causal:
        raise OnefoldRuntimeError("explicit attn_mask should not be set when is_causal=True")
    scale = scale_of(query, scale)
    grouped = enable_gqa and query.ndim > 2 and query.shape[-3] != key.shape[-3]
    triton = uses_triton(device_type(query.meta))
    plain = dropout_p == 0.0 and not near and attn_mask is None and not grouped
    if plain and fits(query.meta, key.meta, value.meta, triton):
        return flash_attention((query, key, value), is_causal, scale)[0]
    if near or triton:
        four = in_four_dims(query, key, value, attn_mask, enable_gqa, triton)
        if four is not None:
            chance = next_draw(dropout_p) if dropout_p else None
            y = fused_attention((*four.tensors, chance), is_causal, scale, near)[0]
            return y if y.shape == four.shape else names.view(y, four.shape)
    attn_mask, is_causal = windowed(query, key, attn_mask, is_causal, near)
    if dropout_p == 0.0:
        tensors = (query, key, value, attn_mask)
        return attention(tensors, is_causal, scale, grouped)
    wide_q, wide_k, wide_v, wide_mask = with_groups(query, key, value, attn_mask, grouped)
    p = probabilities(wide_q, wide_k, wide_mask, is_causal, scale)
    y = names.matmul(dropout_by(p, next_draw(dropout_p)), wide_v)
    if grouped:
        y = names.view(y, (*query.shape[:-1], value.shape[-1]))
    return y  # type: ignore[no-any-return]


def check_window(window: Any) -> int:
    """The window, 0 for none. Raises OnefoldValueError unless it is an integer above 0."""
    if window is None:
        return 0
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise OnefoldValueError(
            "attention needs a window of at least 1, the places from a query to the first key "
            f"that it does not see, or None for all keys; got {window!r}"
        )
    return int(window)


def scale_of(query: Tensor, scale: float | None) -> float:
    """The scale, or 1 / sqrt(features)."""
    if scale is not None:
        return float(scale)
    return float(query.shape[-1]) ** -0.5 if query.shape[-1] else 1.0
