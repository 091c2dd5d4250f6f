"""Attention of the last tokens of each sequence to its keys and values in pages of a cache.

Source: Kwon et al., "Efficient Memory Management for Large Language Model Serving with
PagedAttention" (2023).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .attention_ref import Pairs, attention


def paged_attention(
    q: Tensor, key_cache: Tensor, value_cache: Tensor, block_table: Tensor, context_lens: Tensor,
    scale: float, length: int, first: int,
) -> Tensor:  # fmt: skip
    """softmax(q k^T * scale) v, of q (batch, heads, queries, features).

    The caches are (blocks, block size, heads, features); several heads of q may share one of them.
    Row b of `block_table` has the numbers of the blocks of sequence b, whose first
    `context_lens[b]` tokens are there. Its last `length` tokens are the queries; q has those from
    `first` on. Each sees the tokens up to its own. Raises IndexError for a block that is not there.
    """
    size, longest = key_cache.shape[1], int(context_lens.max()) if context_lens.numel() else 0
    if longest > block_table.shape[1] * size:
        raise IndexError(
            f"a context of {longest} tokens has no room in {block_table.shape[1]} blocks of {size}"
        )
    table = block_table[:, : -(-longest // max(size, 1))].long()
    place = torch.arange(table.shape[1] * size, device=q.device)
    there = place < context_lens[:, None]
    used = there[:, ::size] if size else there
    if not bool(((table >= 0) & (table < len(key_cache)))[used].all()):
        raise IndexError(f"block_table has numbers that are none of the {len(key_cache)} blocks")
    table = table.where(used, 0)
    k, v = (
        cache[table].flatten(1, 2).masked_fill(~there[..., None, None], 0).transpose(1, 2)
        for cache in (key_cache, value_cache)
    )
    own = context_lens[:, None] - length + first + torch.arange(q.shape[2], device=q.device)
    seen = (place <= own[..., None]) & there[:, None]
    return attention(q, k, v, seen[:, None], Pairs(False, scale), None)[0]
