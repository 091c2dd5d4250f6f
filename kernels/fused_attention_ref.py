"""Attention that keeps the logarithms of sums: masks, windows, shared heads, dropout, packing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from . import random_ref


@dataclass(frozen=True, slots=True)
class Pairs:
    """Which pairs of a query and a key there are, and the factor of their scores.

    All, or (`causal`) of a key at most as far as the query; a `window` leaves pairs fewer than so
    many places apart, 0 all. `first` is the logical index of the first query.
    """

    causal: bool
    scale: float
    window: int = 0
    first: int = 0

    def seen(self, rows: int, columns: int, device: torch.device) -> Tensor | None:
        """Whether query i sees key j; None where all do."""
        if not self.causal and not self.window:
            return None
        apart = torch.arange(rows, device=device)[:, None] + self.first
        apart = apart - torch.arange(columns, device=device)
        there = apart >= 0 if self.causal else torch.ones_like(apart, dtype=torch.bool)
        return there & (apart.abs() < self.window) if self.window else there


@dataclass(frozen=True, slots=True)
class Dropped:
    """Dropout of probabilities: a draw, the logical (batch, heads, queries, keys) that it is of,
    and the place in them of this part's first; see `random.py`.
    """

    p: float
    seed: int
    call: int
    shape: tuple[int, ...]
    offset: tuple[int, ...]


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32


def _grouped(x: Tensor, heads: int) -> Tensor:
    """(batch, heads * n, rows, columns) as (batch, heads, n, rows, columns), widened."""
    batch, count, *rest = x.shape
    return x.to(_wide(x.dtype)).reshape(batch, heads, count // max(heads, 1), *rest)


def _scores(q: Tensor, k: Tensor, mask: Tensor | None, pairs: Pairs) -> Tensor:
    """Of all pairs, of the shape (batch, heads of k, n, queries, keys); -inf where not seen."""
    heads = k.shape[1]
    scores = _grouped(q, heads) @ _grouped(k, heads).mT * pairs.scale
    if mask is not None:
        full = mask.expand(*q.shape[:3], k.shape[2]).reshape(scores.shape)
        if mask.dtype is torch.bool:
            scores = scores.masked_fill(~full, -math.inf)
        else:
            scores = scores + full.to(scores.dtype)
    there = pairs.seen(q.shape[2], k.shape[2], q.device)
    return scores if there is None else scores.masked_fill(~there, -math.inf)


def _weights(scores: Tensor, logs: Tensor) -> Tensor:
    """The softmax; zeros in rows that see no key."""
    return (scores - logs.masked_fill(logs == -math.inf, 0.0)[..., None]).exp()


def _drop(p: Tensor, heads: int, drop: Dropped | None) -> Tensor:
    if drop is None:
        return p
    flat = p.reshape(p.shape[0], heads, *p.shape[3:]).contiguous()
    draw = {"p": drop.p, "seed": drop.seed, "call": drop.call}
    return random_ref.dropout(flat, drop.shape, drop.offset, **draw).view(p.shape)  # type: ignore[arg-type]


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, pairs: Pairs, drop: Dropped | None
) -> tuple[Tensor, Tensor]:
    """dropout(softmax(q k^T * scale + mask)) v, and the logarithms of the softmax's sums.

    The tensors have the shape (batch, heads, length, features); several heads of q may share one
    of k and v. A row whose keys are all hidden gives zeros, and -inf as its logarithm.
    """
    heads, shape = q.shape[1], q.shape[:3]
    scores = _scores(q, k, mask, pairs)
    logs = scores.logsumexp(-1)
    p = _drop(_weights(scores, logs), heads, drop)
    y = p @ _grouped(v, v.shape[1])
    return y.reshape(*shape, v.shape[-1]).to(q.dtype), logs.reshape(shape)


def fused_attention_grad(
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    y: Tensor,
    logs: Tensor,
    pairs: Pairs,
    drop: Dropped | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `fused_attention` for q, k and v."""
    heads = k.shape[1]
    rows, grads, ys = (_grouped(x, heads) for x in (q, dy, y))
    keys, values = _grouped(k, heads), _grouped(v, heads)
    p = _weights(_scores(q, k, mask, pairs), logs.reshape(*rows.shape[:-1]))
    dv = (_drop(p, q.shape[1], drop).mT @ grads).sum(2)
    dp = _drop(grads @ values.mT, q.shape[1], drop)
    ds = p * (dp - (grads * ys).sum(-1, keepdim=True)) * pairs.scale
    dq, dk = ds @ keys, (ds.mT @ rows).sum(2)
    return dq.reshape(q.shape).to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


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
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_starts: Tensor,
    k_starts: Tensor,
    longest: Longest,
    pairs: Pairs,
) -> tuple[Tensor, Tensor]:
    """`fused_attention` of sequences one after the other, of shape (total, heads, features).

    `q_starts` and `k_starts` say where each begins, and where the last one ends. The last query of
    a sequence is at the place of its last key. Logarithms have the shape (heads, total). What is in
    no sequence gives zeros.
    """
    y = q.new_zeros(*q.shape[:2], v.shape[-1])
    logs = q.new_full((q.shape[1], q.shape[0]), -math.inf, dtype=_wide(q.dtype))
    for r, c, own in _cuts(q, k, q_starts, k_starts, longest, pairs):
        part, kept = fused_attention(_four(q[r]), _four(k[c]), _four(v[c]), None, own, None)
        y[r], logs[:, r] = part[0].transpose(0, 1), kept[0]
    return y, logs


def packed_attention_grad(
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_starts: Tensor,
    k_starts: Tensor,
    y: Tensor,
    logs: Tensor,
    longest: Longest,
    pairs: Pairs,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `packed_attention` for q, k and v."""
    grads = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for r, c, own in _cuts(q, k, q_starts, k_starts, longest, pairs):
        rows, queries, keys, values, found = map(_four, (dy[r], q[r], k[c], v[c], y[r]))
        kept = logs[None, :, r]
        parts = fused_attention_grad(rows, queries, keys, values, None, found, kept, own, None)
        for whole, cut, part in zip(grads, (r, c, c), parts, strict=True):
            whole[cut] = part[0].transpose(0, 1)
    return grads
