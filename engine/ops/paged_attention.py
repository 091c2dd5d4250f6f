"""Attention to keys and values in pages of a cache. Batch, heads and queries may be split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...errors import OnefoldTypeError, OnefoldValueError
from ...kernels import paged_attention_ref as kernels
from ..dispatcher import general
from ..meta import Meta
from ..names import register_function
from ..op import Arg, Kernel, Local, Op, required
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .attention import heads_may_split, scale_of
from .packed_attention import INTEGERS


class PagedAttributes(NamedTuple):
    """The scale of the scores."""

    scale: float


class PagedAttention(Op):
    """y = softmax(q k^T * scale) v of the last tokens of each sequence, to those up to their own"""

    name = "paged_attention"
    attributes = PagedAttributes
    differentiable = False

    def infer(
        self, q: Meta, k: Meta, v: Meta, table: Meta, lens: Meta, attrs: PagedAttributes
    ) -> Meta:
        _check(q, k, v, table, lens)
        return q.like(shape=(*q.shape[:3], v.shape[3]))

    def rule(self, axis: Axis, q: Meta, k: Meta, *others: Arg) -> Rule:
        whole = (broadcast,) * 4
        found = [
            Signature((split(0), broadcast, broadcast, split(0), split(0)), (split(0),)),
            Signature((split(2), *whole), (split(2),)),
            Signature((broadcast, broadcast, partial_sum, broadcast, broadcast), (partial_sum,)),
        ]
        if heads_may_split(axis, q, k.like(shape=(1, k.shape[2]))):
            shared = (split(2), split(2), broadcast, broadcast)
            found.append(Signature((split(1), *shared), (split(1),)))
        return found

    def bind(self, local: Local, attrs: PagedAttributes) -> Kernel:
        length, first = local.input(0).shape[2], local.input_offset(0)[2]
        return local.bind(kernels.paged_attention, attrs.scale, length, first)

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        q, k, _, table, _ = map(required, inputs)
        return 2.0 * table.shape[1] * k.shape[1] * (outputs[0].numel + q.numel)


def _check(q: Meta, k: Meta, v: Meta, table: Meta, lens: Meta) -> None:
    given = f"got query {q.shape}, key_cache {k.shape} and value_cache {v.shape}"
    if (
        not q.ndim == k.ndim == v.ndim == 4
        or k.shape[:3] != v.shape[:3]
        or q.shape[3] != k.shape[3]
    ):
        raise OnefoldValueError(
            "paged_attention needs query (batch, heads, queries, E) and caches of (blocks, block "
            f"size, heads, features), which differ at most in their features, but {given}"
        )
    if not k.shape[2] or q.shape[1] % k.shape[2]:
        raise OnefoldValueError(
            f"the heads of query must be a multiple of those of the caches, but {given}"
        )
    if not q.is_floating or not q.dtype == k.dtype == v.dtype:
        raise OnefoldTypeError(
            "query, key_cache and value_cache must have one floating dtype, but got "
            f"{q.dtype}, {k.dtype} and {v.dtype}"
        )
    if table.dtype not in INTEGERS or lens.dtype not in INTEGERS:
        raise OnefoldTypeError(
            "block_table and context_lens must be int32 or int64, but got "
            f"{table.dtype} and {lens.dtype}"
        )
    batch = q.shape[0]
    if table.ndim != 2 or table.shape[0] != batch or lens.shape != (batch,):
        raise OnefoldValueError(
            f"block_table must be (batch, blocks of a sequence) and context_lens (batch,) for a "
            f"batch of {batch}, but are {table.shape} and {lens.shape}"
        )


_paged_attention = general(PagedAttention())


@register_function
def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    context_lens: Tensor,
    *,
    scale: float | None = None,
) -> Tensor:
    """Attention of new tokens to earlier ones, whose keys and values are in pages of a cache.

    `query` is (batch, heads, L, E): the last L tokens of each sequence, mostly one. The caches are
    (blocks, block size, heads, E or Ev), with the new tokens already in them; query may have
    several times their heads. Row b of `block_table` (batch, blocks) has the numbers of the blocks
    of sequence b, in its order, and `context_lens` (batch,) says how many tokens it has; both are
    int32 or int64. A token sees those up to its own. `scale` defaults to 1 / sqrt(E).

    Batch, heads and queries may be split. There is no gradient. Raises an error when shapes or
    dtypes do not fit. What the tables hold is checked on the CPU only. Source: Kwon et al.,
    "Efficient Memory Management for Large Language Model Serving with PagedAttention" (2023).

    Example:
        >>> import onefold as flow
        >>> cache = flow.randn(8, 16, 2, 64)  # blocks, block size, heads, features
        >>> table = flow.tensor([[3, 1], [0, 5]])
        >>> query = flow.randn(2, 4, 1, 64)
        >>> flow.paged_attention(query, cache, cache, table, flow.tensor([20, 7])).shape
        torch.Size([2, 4, 1, 64])
    """
    tensors = query, key_cache, value_cache, block_table, context_lens
    return _paged_attention(tensors, scale_of(query, scale))
