"""Attention that keeps the logarithms of sums, by the kernels of `attention.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from ... import fused_attention_ref as reference
from ...attention_ref import WIDEST
from ...fused_attention_ref import Dropped, Longest, Pairs
from .attention_kernels import Drop, Form, Heads, attend, attend_grad, dense

TORCH = {
    f"heads of more than {WIDEST} features": "a tile of them does not fit the registers",
}


def _left_out(q: Tensor, k: Tensor, v: Tensor) -> bool:
    return max(q.shape[-1], v.shape[-1]) > WIDEST or 0 in map(torch.numel, (q, k, v))


def _form(pairs: Pairs, drop: Dropped | None) -> Form:
    own = None
    if drop is not None:
        (_, heads, queries, _), (batch, head, _, _) = drop.shape, drop.offset
        own = Drop(drop.p, drop.seed, drop.call, heads, queries, batch, head)
    return Form(pairs.causal, pairs.scale, pairs.first, pairs.window, own)


def _heads(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Heads:
    if mask is not None:
        mask = mask.expand(*q.shape[:3], k.shape[2])
    return Heads(dense(q), dense(k), dense(v), mask)


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, pairs: Pairs, drop: Dropped | None
) -> tuple[Tensor, Tensor]:
    if _left_out(q, k, v):
        return reference.fused_attention(q, k, v, mask, pairs, drop)
    return attend(_heads(q, k, v, mask), _form(pairs, drop))


def fused_attention_grad(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, y: Tensor, logs: Tensor,
    pairs: Pairs, drop: Dropped | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    if _left_out(q, k, v):
        return reference.fused_attention_grad(dy, q, k, v, mask, y, logs, pairs, drop)
    return attend_grad(dy, _heads(q, k, v, mask), y, logs, _form(pairs, drop))


def _four(x: Tensor) -> Tensor:
    return x.transpose(0, 1)[None]


def _three(x: Tensor) -> Tensor:
    return x[0].transpose(0, 1)


def _packed(pairs: Pairs, starts: tuple[Tensor, Tensor], longest: Longest) -> Form:
    return Form(pairs.causal, pairs.scale, 0, pairs.window, None, starts, longest)


def packed_attention(
    q: Tensor, k: Tensor, v: Tensor, q_starts: Tensor, k_starts: Tensor, longest: Longest,
    pairs: Pairs,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if _left_out(q, k, v) or 0 in longest or q_starts.numel() < 2:
        return reference.packed_attention(q, k, v, q_starts, k_starts, longest, pairs)
    form = _packed(pairs, (q_starts.contiguous(), k_starts.contiguous()), longest)
    y, logs = attend(_heads(_four(q), _four(k), _four(v), None), form)
    return _three(y), logs[0]


def packed_attention_grad(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, q_starts: Tensor, k_starts: Tensor, y: Tensor,
    logs: Tensor, longest: Longest, pairs: Pairs,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    if _left_out(q, k, v) or 0 in longest or q_starts.numel() < 2:
        return reference.packed_attention_grad(
            dy, q, k, v, q_starts, k_starts, y, logs, longest, pairs
        )
    form = _packed(pairs, (q_starts.contiguous(), k_starts.contiguous()), longest)
    h = _heads(_four(q), _four(k), _four(v), None)
    dq, dk, dv = attend_grad(dense(_four(dy)), h, dense(_four(y)), logs.contiguous()[None], form)
    return _three(dq), _three(dk), _three(dv)
