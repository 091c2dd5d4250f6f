"""Attention of sequences of different lengths that are packed one after the other."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from .attention_ref import Pairs, attention, attention_grad, wide

Longest = tuple[int, int]  # how many queries and keys one of the packed sequences has at most


def _spans(starts: Tensor, total: int, longest: int, of: str) -> list[slice]:
    """Where the sequences are. Raises ValueError where they cannot be there."""
    ends = starts.tolist()
    lengths = [b - a for a, b in pairwise(ends)]
    if ends[0] != 0 or ends[-1] > total or min(lengths, default=0) < 0:
        raise ValueError(
            f"the starts of packed {of} must begin with 0, not fall, and end at most at the "
            f"{total} that there are, but got {ends}"
        )
    if max(lengths, default=0) > longest:
        raise ValueError(f"a sequence has {max(lengths)} {of}, more than max_seqlen, {longest}")
    return [slice(a, b) for a, b in pairwise(ends)]


def _cuts(
    q: Tensor, k: Tensor, q_starts: Tensor, k_starts: Tensor, longest: Longest, pairs: Pairs
) -> list[tuple[slice, slice, Pairs]]:
    """Of each sequence, its queries, its keys, and which pairs of them there are."""
    rows = _spans(q_starts, q.shape[0], longest[0], "queries")
    columns = _spans(k_starts, k.shape[0], longest[1], "keys")
    return [
        (r, c, replace(pairs, first=(c.stop - c.start) - (r.stop - r.start)))
        for r, c in zip(rows, columns, strict=True)
    ]


def _four(x: Tensor) -> Tensor:
    """(total, heads, features) as (1, heads, total, features)."""
    return x.transpose(0, 1)[None]


def packed_attention(
    q: Tensor, k: Tensor, v: Tensor, q_starts: Tensor, k_starts: Tensor, longest: Longest,
    pairs: Pairs,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`attention` of sequences one after the other, of shape (total, heads, features).

    `q_starts` and `k_starts` say where each begins, and where the last one ends. The last query of
    a sequence is at the place of its last key. Logarithms have the shape (heads, total). What is in
    no sequence gives zeros.
    """
    y = q.new_zeros(*q.shape[:2], v.shape[-1])
    lse = q.new_full((q.shape[1], q.shape[0]), -math.inf, dtype=wide(q.dtype))
    for r, c, own in _cuts(q, k, q_starts, k_starts, longest, pairs):
        part, kept = attention(_four(q[r]), _four(k[c]), _four(v[c]), None, own, None)
        y[r], lse[:, r] = part[0].transpose(0, 1), kept[0]
    return y, lse


def packed_attention_grad(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, q_starts: Tensor, k_starts: Tensor, y: Tensor,
    lse: Tensor, longest: Longest, pairs: Pairs,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of `packed_attention` for q, k and v."""
    grads = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for r, c, own in _cuts(q, k, q_starts, k_starts, longest, pairs):
        rows, queries, keys, values, found = map(_four, (dy[r], q[r], k[c], v[c], y[r]))
        kept = lse[None, :, r]
        parts = attention_grad(rows, queries, keys, values, None, found, kept, own, None)
        for whole, cut, part in zip(grads, (r, c, c), parts, strict=True):
            whole[cut] = part[0].transpose(0, 1)
    return grads
