"""The gradients of attention as smaller ops: for the gradient of a mask, and second gradients."""

from __future__ import annotations

import torch

from ...kernels import attention_ref as kernels
from ..dispatcher import unary
from ..meta import Meta
from ..op import Gradients, Kernel, Local, Needs, Op
from ..sbp import partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..views import frozen
from .arithmetic import add, mul
from .cast import cast
from .compare import eq, logical_and
from .creation import ones as ones_op
from .dims import unsqueeze
from .dropout import DropoutKey, dropout_by
from .flip_repeat import tril, triu
from .like import ConstantAttributes, replicated_like
from .matmul import matmul, product_nt, product_tn
from .reduce import sum_to
from .softmax import softmax, softmax_grad
from .unary import logical_not
from .view import view
from .where import masked_fill

# causal, scale, grouped (several query heads per head of keys and values)
Attrs = tuple[bool, float, bool]


class CausalFill(Op):
    """y[..., i, j] = x[..., i, j] where j <= i, else a value"""

    name = "causal_fill"
    attributes = ConstantAttributes
    like = (0,)
    saves = ()

    def rule(self, axis: Axis, x: Meta, attrs: ConstantAttributes) -> Rule:
        found = [Signature((split(i),), (split(i),)) for i in range(x.ndim)]
        if attrs.value == 0.0:
            found.append(Signature((partial_sum,), (partial_sum,)))
        return found

    def bind(self, local: Local, attrs: ConstantAttributes) -> Kernel:
        row, column = local.input_offset(0)[-2:]
        return local.bind(kernels.causal_fill, attrs.value, row - column)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Meta, attrs: ConstantAttributes
    ) -> Gradients:
        return (_causal_fill(dy, 0.0),)


_causal_fill = unary(CausalFill())


def _grouped_heads(x: Tensor, heads: int) -> Tensor:
    """(..., heads * n, s, d) as (..., heads, n, s, d)."""
    *batch, count, rows, columns = x.shape
    return view(x, (*batch, heads, count // heads, rows, columns))


def probabilities(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    """softmax(q k^T * scale + mask); zeros in rows in which every key is masked."""
    scores = mul(product_nt(q, k), scale)
    # Not -inf: a row without any key to see shall give zeros, not nan.
    low = torch.finfo(q.dtype).min / 2
    if causal:
        scores = _causal_fill(scores, low)
        return _causal_fill(softmax(scores, -1), 0.0)
    if mask is None:
        return softmax(scores, -1)
    if mask.dtype is torch.bool:
        hidden = logical_not(mask)
    else:
        if mask.dtype is not q.dtype:  # float32
            mask = cast(mask, q.dtype)
        hidden = eq(frozen(mask), float("-inf"))
        scores = add(scores, masked_fill(mask, hidden, 0.0))
    scores = masked_fill(scores, hidden, low)
    return masked_fill(softmax(scores, -1), hidden, 0.0)


def with_groups(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, grouped: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The tensors with one more dim, so that shared heads of keys and values broadcast."""
    if not grouped:
        return q, k, v, mask
    heads = k.shape[-3]
    q = _grouped_heads(q, heads)
    if mask is not None and mask.ndim > 2:
        one = mask.shape[-3] == 1
        mask = unsqueeze(mask, -3) if one else _grouped_heads(mask, heads)
    return q, unsqueeze(k, -3), unsqueeze(v, -3), mask


def windowed(
    q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, window: int
) -> tuple[Tensor | None, bool]:
    """A mask that includes the window, and whether attention is causal besides."""
    if not window:
        return mask, causal
    ones = ones_op((q.shape[-2], k.shape[-2]), dtype=torch.bool, **replicated_like(q))
    near = tril(triu(ones, 1 - window), 0 if causal else window - 1)
    if mask is None:
        return near, False
    if mask.dtype is torch.bool:
        return logical_and(mask, near), False
    return masked_fill(mask, logical_not(near), float("-inf")), False


def gradients(
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    attrs: Attrs,
    dropout: DropoutKey | None = None,
) -> tuple[Tensor | None, ...]:
    """Gradients for q, k, v and the mask, which can be differentiated again.

    With `dropout`, of attention whose probabilities it drops.
    """
    causal, scale, grouped = attrs
    wide_q, wide_k, wide_v, wide_mask = with_groups(q, k, v, mask, grouped)
    if grouped:
        dy = _grouped_heads(dy, k.shape[-3])
    p = probabilities(wide_q, wide_k, wide_mask, causal, scale)
    dp, dropped = product_nt(dy, wide_v), p
    if dropout is not None:
        dp, dropped = dropout_by(dp, dropout), dropout_by(p, dropout)
    d_scores = softmax_grad(dp, p, -1)
    d_mask = None
    if wide_mask is not None and mask is not None and mask.meta.is_floating:
        d_mask = view(sum_to(d_scores, wide_mask.meta), mask.shape)
        if mask.dtype is not q.dtype:
            d_mask = cast(d_mask, mask.dtype)
    scaled = mul(d_scores, scale)
    dq = sum_to(matmul(scaled, wide_k), wide_q.meta)
    dk = sum_to(product_tn(scaled, wide_q), wide_k.meta)
    dv = sum_to(product_tn(dropped, dy), wide_v.meta)
    if grouped:
        dq, dk, dv = (view(d, x.shape) for d, x in ((dq, q), (dk, k), (dv, v)))
    return dq, dk, dv, d_mask
