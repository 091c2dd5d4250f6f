"""Scaled dot product attention and its gradient on local tensors.

The CPU's own kernel does what it can: all but dropout, and values of other features than the keys.
Where there is none, a matrix of scores is made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from . import random_ref
from .host_memory import on_host
from .philox import Seed

Shape = tuple[int, ...]

WIDEST = 256  # features of a head in the Triton kernels: a tile of more does not fit the registers

_flash = torch._scaled_dot_product_flash_attention_for_cpu  # less time than by torch.ops
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def causal_mask(rows: int, columns: int, first: int, device: torch.device) -> Tensor:
    """Whether query `first + i` may see key j: True where j <= first + i."""
    return torch.ones(rows, columns, dtype=torch.bool, device=device).tril_(first)


def causal_fill(x: Tensor, value: float, first: int) -> Tensor:
    """x[..., i, j] where key j <= first + i, else a value."""
    return torch.where(causal_mask(x.shape[-2], x.shape[-1], first, x.device), x, value)


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of queries and keys, and the scale of their scores.

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
    and the place in them of this part's first; see `random_ref.py`.
    """

    p: float
    seed: Seed
    call: int
    shape: tuple[int, ...]
    offset: tuple[int, ...]


def fit(q: Shape, k: Shape, v: Shape, mask: Shape | None) -> bool:
    """Whether the shapes are compatible; the CPU's kernel reads out of bounds if they are not."""
    if q[0] != k[0] or q[3] != k[3] or k[:3] != v[:3]:
        return False
    if q[1] != k[1] and (not k[1] or q[1] % k[1]):
        return False
    scores = (*q[:3], k[2])
    return mask is None or all(m in (1, n) for m, n in zip(mask[::-1], scores[::-1], strict=False))


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, pairs: Pairs, drop: Dropped | None
) -> tuple[Tensor, Tensor]:
    """dropout(softmax(q k^T * scale + mask)) v, and the logsumexp (lse) of each query's scores.

    The tensors have the shape (batch, heads, length, features); several heads of q may share one
    of k and v. A row whose keys are all masked gives zeros, and an lse that depends on the kernel.
    Shapes are not checked: see `fit`.
    """
    if not (q.numel() and k.numel() and v.numel()):
        lse = q.new_zeros(q.shape[:-1], dtype=wide(q.dtype))
        return q.new_zeros(*q.shape[:-1], v.shape[-1]), lse
    if not _has_kernel(q, v, drop):
        return _by_scores(q, k, v, mask, pairs, drop)
    added, causal = _added(q, k, mask, pairs)
    q, k, v = map(_in_rows, (q, k, v))
    y, lse = _flash(q, k, v, 0.0, causal, attn_mask=added, scale=pairs.scale)
    return y, lse


def attention_grad(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, y: Tensor, lse: Tensor,
    pairs: Pairs, drop: Dropped | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of `attention` for q, k and v, from what it gave."""
    if not (q.numel() and k.numel() and v.numel()):
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    if not _has_kernel(q, v, drop):
        p = _softmax(_scores(q, k, mask, pairs), mask, pairs)
        # Drawn once for weights and gradients.
        kept = None if drop is None else _drop(torch.ones_like(p), q.shape[1], drop)
        return _gradients(dy, q, k, v, y, p, kept, pairs.scale)
    added, causal = _added(q, k, mask, pairs)
    if added is not None:
        lse = lse.masked_fill(lse == -math.inf, 0.0)
    tensors = map(_in_rows, (dy, q, k, v, y))
    dq, dk, dv = _flash_backward(*tensors, lse, 0.0, causal, attn_mask=added, scale=pairs.scale)
    return dq, dk, dv


def attention_grad_joined(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, y: Tensor, lse: Tensor,
    pairs: Pairs, drop: Dropped | None, order: Sequence[int],
) -> Tensor:  # fmt: skip
    """The results of `attention_grad` side by side in this order, for as many queries as keys.

    The shape is (batch, length, features of all heads), as that of what a projection gives.
    """
    grads = attention_grad(dy, q, k, v, mask, y, lse, pairs, drop)
    return torch.cat([grads[place].transpose(1, 2).flatten(2) for place in order], -1)


def _has_kernel(q: Tensor, v: Tensor, drop: Dropped | None) -> bool:
    return on_host(q) and q.shape[-1] == v.shape[-1] and drop is None


def _added(q: Tensor, k: Tensor, mask: Tensor | None, pairs: Pairs) -> tuple[Tensor | None, bool]:
    """The mask to add to the scores, and whether attention is causal besides."""
    if mask is None and not pairs.window and not (pairs.causal and pairs.first):
        return None, pairs.causal
    if mask is not None and mask.ndim in (1, 3):
        mask = mask[None]  # the kernel takes 2 dims or 4
    seen = pairs.seen(q.shape[2], k.shape[2], q.device)
    if mask is None or mask.dtype is torch.bool:
        seen = mask if seen is None else seen if mask is None else mask & seen
        assert seen is not None
        return seen.to(q.dtype).log_(), False  # 0 or -inf
    if q.dtype is torch.float64:
        mask = mask.double()  # the kernel reads one of float32 wrongly, from 16 keys on
    return mask if seen is None else mask.masked_fill(~seen, -math.inf), False


def _in_rows(x: Tensor) -> Tensor:
    """The tensor with its last dim dense, as the kernels read it."""
    return x if x.stride(-1) == 1 else x.contiguous()


# With a matrix of scores.


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def _grouped(x: Tensor, heads: int) -> Tensor:
    """(batch, heads * n, rows, columns) as (batch, heads, n, rows, columns), widened."""
    batch, count, *rest = x.shape
    return x.to(wide(x.dtype)).reshape(batch, heads, count // max(heads, 1), *rest)


def _scores(q: Tensor, k: Tensor, mask: Tensor | None, pairs: Pairs) -> Tensor:
    """The scores (batch, heads of k, n, queries, keys) of all pairs; -inf where masked."""
    heads = k.shape[1]
    scores = (_grouped(q, heads) @ _grouped(k, heads).mT).mul_(pairs.scale)
    if mask is not None:
        full = mask.expand(*q.shape[:3], k.shape[2]).reshape(scores.shape)
        if mask.dtype is torch.bool:
            scores.masked_fill_(~full, -math.inf)
        else:
            scores.add_(full)
    there = pairs.seen(q.shape[2], k.shape[2], q.device)
    return scores if there is None else scores.masked_fill_(~there, -math.inf)


def _softmax(
    scores: Tensor, mask: Tensor | None, pairs: Pairs, top: Tensor | None = None
) -> Tensor:
    """The softmax over the keys; zeros in rows that see no key. `top` has the largest scores."""
    p = torch.softmax(scores, -1)
    if mask is None and not pairs.window and pairs.first >= 0:
        return p  # every query sees the first key
    top = scores.amax(-1, keepdim=True) if top is None else top
    return p.masked_fill_(top == -math.inf, 0.0)


def _drop(p: Tensor, heads: int, drop: Dropped | None) -> Tensor:
    if drop is None:
        return p
    flat = p.reshape(p.shape[0], heads, *p.shape[3:]).contiguous()
    box = (drop.shape, drop.offset)
    return random_ref.dropout(flat, *box, p=drop.p, seed=drop.seed, call=drop.call).view(p.shape)


def _by_scores(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, pairs: Pairs, drop: Dropped | None
) -> tuple[Tensor, Tensor]:
    heads, shape = q.shape[1], q.shape[:3]
    scores = _scores(q, k, mask, pairs)
    top = scores.amax(-1, keepdim=True)
    p = _softmax(scores, mask, pairs, top)
    # The largest weight is 1 / sum(exp(score - largest score)): no second pass of exponentials.
    lse = (top - p.amax(-1, keepdim=True).log()).masked_fill_(top == -math.inf, -math.inf)
    y = _drop(p, heads, drop) @ _grouped(v, v.shape[1])
    return y.reshape(*shape, v.shape[-1]).to(q.dtype), lse.reshape(shape)


def _gradients(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, p: Tensor, kept: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients, from the weights and the factors of dropout."""
    heads = k.shape[1]
    rows, grads, ys = (_grouped(x, heads) for x in (q, dy, y))
    keys, values = _grouped(k, heads), _grouped(v, heads)
    dropped, dp = p, grads @ values.mT
    if kept is not None:
        dropped, dp = p * kept, dp.mul_(kept)
    dv = (dropped.mT @ grads).sum(2)
    ds = dp.sub_((grads * ys).sum(-1, keepdim=True)).mul_(p).mul_(scale)
    dq, dk = ds @ keys, (ds.mT @ rows).sum(2)
    return dq.reshape(q.shape).to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


def attention_with_weights(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, pairs: Pairs, drop: Dropped
) -> tuple[Tensor, Tensor]:
    """`attention` with dropout, and the weights before it, negative where they are dropped.

    With these the gradient needs no second draw, which costs more than all else.
    """
    shape = (*q.shape[:3], k.shape[2])
    if not (q.numel() and k.numel() and v.numel()):
        return q.new_zeros(*shape[:3], v.shape[-1]), q.new_zeros(shape, dtype=wide(q.dtype))
    p = _softmax(_scores(q, k, mask, pairs), mask, pairs)
    dropped = _drop(p, q.shape[1], drop)
    y = dropped @ _grouped(v, v.shape[1])
    weights = torch.where(dropped > 0, p, p.neg())
    return y.reshape(*shape[:3], v.shape[-1]).to(q.dtype), weights.reshape(shape)


def attention_with_weights_grad(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, y: Tensor, weights: Tensor,
    pairs: Pairs, drop: Dropped,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of `attention_with_weights` for q, k and v, from what it gave."""
    if not (q.numel() and k.numel() and v.numel()):
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    weights = _grouped(weights, k.shape[1])
    kept = (weights > 0).to(weights.dtype)
    kept.mul_(1.0 / (1.0 - drop.p) if drop.p < 1.0 else 0.0)
    return _gradients(dy, q, k, v, y, weights.abs(), kept, pairs.scale)
