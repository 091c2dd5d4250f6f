"""Attention of sequences of different lengths that are packed one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ...errors import OnefoldTypeError, OnefoldValueError
from ...kernels import packed_attention_ref as kernels
from ...kernels.attention_ref import Pairs
from ...kernels.packed_attention_ref import Longest
from ..dispatcher import several
from ..meta import Meta
from ..names import register_function
from ..op import Arg, Gradients, required
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .arithmetic import mul, sub
from .attention import (
    Attends,
    AttendsGrad,
    check_window,
    heads_may_split,
    kept_of,
    scale_of,
    share_of_pairs,
)
from .attention_decomposition import gradients
from .cast import cast
from .compare import eq, ge, logical_and, lt
from .dims import transpose, unsqueeze
from .like import replicated_like
from .ranges import arange
from .reduce import sum
from .slicing import narrow
from .unary import abs

INTEGERS = (torch.int32, torch.int64)


class PackedAttributes(NamedTuple):
    """The longest sequence length, and the pairs of queries and keys in a sequence."""

    longest: Longest
    pairs: Pairs


class PackedAttention(Attends):
    """y = softmax(q k^T * scale) v of each sequence, and the logarithms of the softmax's sums"""

    name = "packed_attention"
    attributes = PackedAttributes
    kernel = staticmethod(kernels.packed_attention)

    def infer(
        self, q: Meta, k: Meta, v: Meta, q_starts: Meta, k_starts: Meta, attrs: PackedAttributes
    ) -> tuple[Meta, Meta]:
        _check(q, k, v, q_starts, k_starts)
        total, heads, _ = q.shape
        return q.like(shape=(total, heads, v.shape[-1])), kept_of(q, (heads, total))

    def rule(self, axis: Axis, q: Meta, k: Meta, *others: Arg) -> Rule:
        found = []
        if heads_may_split(axis, q, k):
            inputs = (*(split(1),) * 3, broadcast, broadcast)
            found.append(Signature(inputs, (split(1), split(0))))
        whole = (broadcast, broadcast, partial_sum, broadcast, broadcast)
        return [*found, Signature(whole, (partial_sum, broadcast))]

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        return 2.0 * _keys(inputs[1], inputs[4]) * (outputs[0].numel + required(inputs[0]).numel)

    def flops_fraction(self, inputs: Sequence[Meta | None], attrs: object) -> float:
        return share_of_pairs(_keys(inputs[1], inputs[4]), getattr(attrs, "pairs", None))

    def gradients_in_parts(
        self,
        dy: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        q_starts: Tensor,
        k_starts: Tensor,
        attrs: PackedAttributes,
    ) -> Gradients:
        mask = _seen(q, k, q_starts, k_starts, attrs.pairs)
        four = [transpose(x, 0, 1) for x in (dy, q, k, v)]
        parts = False, attrs.pairs.scale, q.shape[1] != k.shape[1]
        found = gradients(four[0], four[1], four[2], four[3], mask, parts)[:3]
        return [None if d is None else transpose(d, 0, 1) for d in found]

    def gradients_at_once(self, dy: Tensor, y: Sequence[Tensor], *args: Arg) -> Gradients:
        *tensors, attrs = args
        return _packed_attention_grad((dy, *tensors, *y), *attrs)


class PackedAttentionGrad(AttendsGrad):
    """Gradients of packed attention for q, k and v"""

    name = "packed_attention_grad"
    attributes = PackedAttributes
    kernel = staticmethod(kernels.packed_attention_grad)

    def rule(self, axis: Axis, dy: Meta, q: Meta, k: Meta, *others: Arg) -> Rule:
        found = [Signature((partial_sum, *(broadcast,) * 7), (partial_sum,) * 3)]
        if heads_may_split(axis, q, k):
            inputs = (*(split(1),) * 4, broadcast, broadcast, split(1), split(0))
            found.append(Signature(inputs, (split(1),) * 3))
        return found

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        q, k, v = outputs
        rows = q.shape[0] * q.shape[1]
        return 4.0 * rows * _keys(k, inputs[5]) * (q.shape[-1] + v.shape[-1])

    def flops_fraction(self, inputs: Sequence[Meta | None], attrs: object) -> float:
        share = share_of_pairs(_keys(inputs[2], inputs[5]), getattr(attrs, "pairs", None))
        return 1.25 * share


def _keys(k: Meta | None, starts: Meta | None) -> float:
    """The keys of one sequence, if all have equally many."""
    return required(k).shape[0] / max(required(starts).numel - 1, 1)


def _check(q: Meta, k: Meta, v: Meta, q_starts: Meta, k_starts: Meta) -> None:
    given = f"got query {q.shape}, key {k.shape} and value {v.shape}"
    if not q.ndim == k.ndim == v.ndim == 3:
        raise OnefoldValueError(f"the tensors must be (total, heads, features), but {given}")
    if k.shape[:2] != v.shape[:2] or q.shape[2] != k.shape[2]:
        raise OnefoldValueError(
            "key and value must have the same total and heads, query and key the same features, "
            f"but {given}"
        )
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise OnefoldValueError(
            f"the heads of query must be a multiple of those of key and value, but {given}"
        )
    if not q.is_floating or not q.dtype == k.dtype == v.dtype:
        raise OnefoldTypeError(
            "query, key and value must have one floating dtype, but got "
            f"{q.dtype}, {k.dtype} and {v.dtype}"
        )
    for name, starts in (("cu_seqlens_q", q_starts), ("cu_seqlens_k", k_starts)):
        if starts.ndim != 1 or starts.dtype not in INTEGERS:
            raise OnefoldTypeError(
                f"{name} must be int32 or int64 of one dim: where each sequence begins, and where "
                f"the last one ends; got {starts.dtype} of shape {starts.shape}"
            )
    if q_starts.shape != k_starts.shape or not q_starts.numel:
        raise OnefoldValueError(
            "cu_seqlens_q and cu_seqlens_k must have one entry more than there are sequences, but "
            f"have {q_starts.numel} and {k_starts.numel}"
        )


def _places(x: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """For each row of x, the number of sequences begun up to it, and its distance to the end."""
    rows = arange(x.shape[0], dtype=starts.dtype, **replicated_like(x))
    count = starts.shape[0] - 1
    begun = cast(ge(unsqueeze(rows, 1), starts), starts.dtype)
    ahead = narrow(begun, 1, 0, count)
    lengths = sub(narrow(starts, 0, 1, count), narrow(starts, 0, 0, count))
    end = sum(mul(ahead, lengths), 1)
    # Those after the last sequence are in none: all sequences have begun, and its end too.
    return sum(begun, 1), sub(rows, end)


def _seen(q: Tensor, k: Tensor, q_starts: Tensor, k_starts: Tensor, pairs: Pairs) -> Tensor:
    """Whether query i sees key j, for all of the packed ones."""
    (q_own, q_place), (k_own, k_place) = _places(q, q_starts), _places(k, k_starts)
    q_own, q_place = unsqueeze(q_own, 1), unsqueeze(q_place, 1)
    inside = lt(q_own, q_starts.shape[0])
    seen = logical_and(eq(q_own, k_own), inside)
    apart = sub(q_place, k_place)
    if pairs.causal:
        seen = logical_and(seen, ge(apart, 0))
    if pairs.window:
        seen = logical_and(seen, lt(abs(apart), pairs.window))
    return seen


_packed_attention = several(PackedAttention(), only_first=True)
_packed_attention_grad = several(PackedAttentionGrad())


@register_function
def attention_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
) -> Tensor:
    """Attention within each of several packed sequences.

    The shapes are (total of queries, heads, E), (total of keys, heads, E) and (total of keys,
    heads, Ev); query may have several times the heads of key and value. `cu_seqlens_q` and
    `cu_seqlens_k` (int32 or int64) say where each sequence begins, and where the last one ends;
    `max_seqlen_q` and `max_seqlen_k` how long one is at most. What is in no sequence gives zeros.

    The last query of a sequence is at the place of its last key, as in flash attention: with
    `is_causal` query i of L sees the keys j <= i + S - L of S, and with a `window` those with
    |i + S - L - j| < window. `scale` defaults to 1 / sqrt(E). The heads may be split; packed dims
    stay whole.

    Raises an error when shapes or dtypes do not fit. What `cu_seqlens` hold is checked on the CPU
    only: on a device that would be a wait.

    Example: `attention_varlen(q, k, v, starts, starts, 4, 4)` with q, k and v of (7, 8, 64) and
    starts of [0, 3, 7].
    """
    pairs = Pairs(is_causal, scale_of(query, scale), check_window(window))
    longest = max_seqlen_q, max_seqlen_k
    if any(type(n) is not int or n < 0 for n in longest):
        raise OnefoldValueError(
            "attention_varlen needs max_seqlen_q and max_seqlen_k as integers, at least 0, but "
            f"got {max_seqlen_q!r} and {max_seqlen_k!r}"
        )
    tensors = (query, key, value, cu_seqlens_q, cu_seqlens_k)
    return _packed_attention(tensors, longest, pairs)[0]
