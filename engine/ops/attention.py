"""Scaled dot product attention: batch, heads, queries and value features may be split."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from ...errors import OnefoldRuntimeError, OnefoldValueError
from ...kernels import attention as kernels
from ...kernels.select import uses_triton
from .. import interp
from ..dispatch import general
from ..meta import Meta
from ..names import named, names
from ..op import Kernel, Local, Op
from ..sbp import Sbp, broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .attention_parts import gradients, probabilities, windowed, with_groups
from .attention_shapes import device_type, in_four_dims
from .dropout import dropout_by, next_draw
from .flash_attention import fits, flash_attention
from .fused_attention import fused_attention

Shape = tuple[int, ...]


@lru_cache(maxsize=4096)
def _letters(
    q: Shape, k: Shape, v: Shape, mask: Shape | None, grouped: bool, parts: int
) -> tuple[tuple[str, ...], ...]:
    """A letter per dim of q, k, v, mask and y; upper case where the dim must stay whole."""
    batch = max(len(q), len(k), len(v)) - 2
    letters = [f"b{i}" for i in range(batch)]
    sizes = [1] * batch
    for shape in (q, k, v):
        for i in range(len(shape) - 2):
            at = batch - len(shape) + 2 + i
            sizes[at] = max(sizes[at], shape[i])
    if grouped and k[-3] % parts:
        letters[-1] = "H"  # query heads would be cut off from their keys

    def own(shape: Shape, rows: str, columns: str) -> tuple[str, ...]:
        start = batch - (len(shape) - 2)
        found = [
            letters[start + i]
            if shape[i] == sizes[start + i] or (grouped and i == len(shape) - 3)
            else "X"
            for i in range(len(shape) - 2)
        ]
        return (*found, rows, columns)

    terms = [own(q, "s", "D"), own(k, "T", "D"), own(v, "T", "e")]
    if mask is not None:
        rows = "s" if len(mask) > 1 and mask[-2] == q[-2] else "X"
        terms.append(own((1, 1, *mask)[-max(len(mask), 2) :], rows, "T")[-len(mask) :])
    terms.append((*letters, "s", "e"))
    return tuple(terms)


def _split_letters(terms: Sequence[Sequence[str]]) -> list[str]:
    return [x for x in dict.fromkeys(x for term in terms for x in term) if x[0].islower()]


def _at(term: Sequence[str], letter: str, otherwise: Sbp) -> Sbp:
    return split(term.index(letter)) if letter in term else otherwise


class Attention(Op):
    """y = softmax(q k^T * scale + mask) v"""

    name = "attention"

    def kernel(self, q: Any, k: Any, v: Any, mask: Any, *attrs: Any) -> torch.Tensor:
        causal, scale, grouped = attrs
        return kernels.attention(q, k, v, mask, causal, scale, grouped, 0)

    def infer(self, q: Meta, k: Meta, v: Meta, mask: Meta | None, *attrs: Any) -> Meta:
        if mask is not None and attrs[0]:
            raise OnefoldRuntimeError("explicit attn_mask should not be set when is_causal=True")
        plain = q.dtype == k.dtype == v.dtype and q.ndim == k.ndim == v.ndim and k.shape == v.shape
        if mask is None and plain and q.shape[:-2] == k.shape[:-2] and q.shape[-1] == k.shape[-1]:
            return q
        blanks = [
            None if m is None else torch.empty(m.shape, dtype=m.dtype, device="meta")
            for m in (q, k, v, mask)
        ]
        y = self.kernel(*blanks, *attrs)
        return Meta.of(y.shape, y.dtype, device=y.device)

    def rule(self, axis: Axis, q: Meta, k: Meta, v: Meta, mask: Meta | None, *attrs: Any) -> Rule:
        *inputs, out = _terms(axis, q, k, v, mask, attrs)
        found = [
            Signature(tuple(_at(t, x, broadcast) for t in inputs), (_at(out, x, broadcast),))
            for x in _split_letters([out])
        ]
        rest = () if mask is None else (broadcast,)
        found.append(Signature((broadcast, broadcast, partial_sum, *rest), (partial_sum,)))
        return found

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        first = local.input_offset(0)[-2]
        causal, scale, grouped = attrs
        kernel = local.pick(kernels.attention)
        return lambda q, k, v, mask: kernel(q, k, v, mask, causal, scale, grouped, first)

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        q, k = inputs[0], inputs[1]
        assert q is not None
        assert k is not None
        return 2.0 * k.shape[-2] * (outputs[0].numel + q.numel)

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        causal: bool,
        scale: float,
        grouped: bool,
    ) -> Any:
        # The fused gradient cannot be differentiated again, and leaves the mask out.
        if interp.grad_enabled or (mask is not None and needs[3]):
            return gradients(dy, q, k, v, mask, (causal, scale, grouped))
        return _attention_grad((dy, q, k, v, mask), causal, scale, grouped)


class AttentionGrad(Op):
    """Gradients of attention for q, k and v"""

    name = "attention_grad"
    num_outputs = 3
    differentiable = False

    def infer(self, dy: Meta, q: Meta, k: Meta, v: Meta, *others: Any) -> tuple[Meta, ...]:
        return q, k, v

    def rule(
        self, axis: Axis, dy: Meta, q: Meta, k: Meta, v: Meta, mask: Meta | None, *attrs: Any
    ) -> Rule:
        *inputs, out = _terms(axis, q, k, v, mask, attrs)
        inputs = [out, *inputs]
        # What lacks the split dim is summed over it.
        found = [
            Signature(
                tuple(_at(t, x, broadcast) for t in inputs),
                tuple(_at(t, x, partial_sum) for t in inputs[1:4]),
            )
            for x in _split_letters([out])
        ]
        rest = (broadcast,) * (len(inputs) - 1)
        return [*found, Signature((partial_sum, *rest), (partial_sum,) * 3)]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        first = local.input_offset(1)[-2]
        causal, scale, grouped = attrs
        kernel = local.pick(kernels.attention_grad)
        return lambda dy, q, k, v, mask: kernel(dy, q, k, v, mask, causal, scale, grouped, first)

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        q, k, v = outputs
        rows = q.numel // max(q.shape[-1], 1)
        return 4.0 * rows * k.shape[-2] * (q.shape[-1] + v.shape[-1])


def _terms(
    axis: Axis, q: Meta, k: Meta, v: Meta, mask: Meta | None, attrs: Sequence[Any]
) -> tuple[tuple[str, ...], ...]:
    shape = None if mask is None else tuple(mask.shape)
    return _letters(tuple(q.shape), tuple(k.shape), tuple(v.shape), shape, attrs[2], axis.parts)


_attention = general(Attention())
_attention_grad = general(AttentionGrad())


@named
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
    plain = dropout_p == 0.0 and not near
    if plain and fits(query.meta, key.meta, value.meta, attn_mask, grouped):
        return flash_attention((query, key, value), is_causal, scale)[0]  # type: ignore[no-any-return]
    if near or uses_triton(device_type(query.meta)):
        four = in_four_dims(query, key, value, attn_mask, enable_gqa)
        if four is not None:
            chance = next_draw(dropout_p) if dropout_p else None
            y = fused_attention((*four.tensors, chance), is_causal, scale, near)[0]
            return y if y.shape == four.shape else names.view(y, four.shape)  # type: ignore[no-any-return]
    attn_mask, is_causal = windowed(query, key, attn_mask, is_causal, near)
    if dropout_p == 0.0:
        tensors = (query, key, value, attn_mask)
        return _attention(tensors, is_causal, scale, grouped)  # type: ignore[no-any-return]
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
