"""Attention with masks, windows, shared heads, dropout and split queries in one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...kernels import fused_attention_ref as kernels
from ...kernels.fused_attention_ref import Dropped, Pairs
from ..dispatcher import general_with_value
from ..meta import Meta
from ..op import Kernel, Local
from ..sbp import Sbp, broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .attention_base import AttendsGrad, Keeping, heads_may_split, logs_of
from .attention_decomposition import gradients, windowed
from .dropout import DropoutKey
from .reduce import sum_to


def _mask_at(mask: Meta, dim: int, size: int) -> Sbp:
    """The layout of a mask where dim `dim` of the scores, of that size, is split."""
    own = dim - 4 + mask.ndim
    return split(own) if own >= 0 and mask.shape[own] == size else broadcast


def _rows(axis: Axis, q: Meta, k: Meta, mask: Meta | None) -> list[tuple[int, tuple[Sbp, ...]]]:
    """The dims of q that may be split, with what k, v and the mask then are."""
    found = []
    for dim in range(3):
        if dim == 1 and not heads_may_split(axis, q, k):
            continue
        own: Sbp = broadcast if dim == 2 else split(dim)
        masks = () if mask is None else (_mask_at(mask, dim, q.shape[dim]),)
        found.append((dim, (own, own, *masks)))
    return found


def _bound(
    kernel: Callable[..., Any], local: Local, at: int, attrs: tuple[Any, ...]
) -> Callable[..., Any]:
    """A kernel that takes tensors and then a chance, on the shard of q, which is input `at`."""
    q, k = local.inputs[at], local.inputs[at + 1]
    assert q is not None
    assert k is not None
    causal, scale, window = attrs
    batch, head, first, _ = local.input_offset(at)
    pairs = Pairs(causal, scale, window, first)
    shape, offset = (*q.shape[:3], k.shape[2]), (batch, head, first, 0)

    def run(*inputs: Any) -> Any:
        *tensors, chance = inputs
        if chance is None:
            return kernel(*tensors, pairs, None)
        draw = chance.draw
        whole, start = draw.within(shape, offset)
        return kernel(*tensors, pairs, Dropped(chance.p, draw.seed, draw.call, whole, start))

    return run


class FusedAttention(Keeping):
    """y = dropout(softmax(q k^T * scale + mask)) v, and the logarithms of the softmax's sums"""

    name = "fused_attention"

    def infer(self, q: Meta, k: Meta, v: Meta, *others: Any) -> tuple[Meta, Meta]:
        rows = q.shape[:-1]
        return q.like(shape=(*rows, v.shape[-1])), logs_of(q, rows)

    def rule(self, axis: Axis, q: Meta, k: Meta, v: Meta, mask: Meta | None, *others: Any) -> Rule:
        found = [
            Signature((split(dim), *others), (split(dim),) * 2)
            for dim, others in _rows(axis, q, k, mask)
        ]
        rest = () if mask is None else (broadcast,)
        whole = (broadcast, broadcast, partial_sum, *rest)
        return [*found, Signature(whole, (partial_sum, broadcast))]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        return _bound(local.pick(kernels.fused_attention), local, 0, attrs)

    def gradients_in_parts(
        self,
        dy: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        chance: DropoutKey | None,
        causal: bool,
        scale: float,
        window: int,
    ) -> Any:
        full, causal = windowed(q, k, mask, causal, window)
        attrs = causal, scale, q.shape[1] != k.shape[1]
        *found, d_mask = gradients(dy, q, k, v, full, attrs, chance)
        if mask is not None and d_mask is not None:
            d_mask = sum_to(d_mask, mask.meta)  # a window widens a mask
        return (*found, d_mask)

    def gradients_at_once(self, dy: Tensor, y: tuple[Tensor, Tensor], *args: Any) -> Any:
        q, k, v, mask, chance, *attrs = args
        return _fused_attention_grad((dy, q, k, v, mask, *y, chance), *attrs)


class FusedAttentionGrad(AttendsGrad):
    """Gradients of fused attention for q, k and v"""

    name = "fused_attention_grad"

    def rule(
        self, axis: Axis, dy: Meta, q: Meta, k: Meta, v: Meta, mask: Meta | None, *others: Any
    ) -> Rule:
        found = []
        for dim, rest in _rows(axis, q, k, mask):
            own = split(dim)
            inputs = (own, own, *rest, own, own)
            sums = partial_sum if dim == 2 else own  # keys and values are seen by all queries
            found.append(Signature(inputs, (own, sums, sums)))
        whole = (broadcast,) * (5 if mask is None else 6)
        return [*found, Signature((partial_sum, *whole), (partial_sum,) * 3)]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        return _bound(local.pick(kernels.fused_attention_grad), local, 1, attrs)


fused_attention = general_with_value(FusedAttention(), only_first=True)
_fused_attention_grad = general_with_value(FusedAttentionGrad())
