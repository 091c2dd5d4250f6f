"""Attention of packed sequences, by the kernels of `attention_kernels.py`."""

from __future__ import annotations

from torch import Tensor

from ... import packed_attention_ref as reference
from ...attention_ref import Pairs
from ...packed_attention_ref import Longest
from .attention_kernels import Form, attend, attend_grad, dense, heads_of, left_out


def _four(x: Tensor) -> Tensor:
    return x.transpose(0, 1)[None]


def _three(x: Tensor) -> Tensor:
    return x[0].transpose(0, 1)


def packed_attention(
    q: Tensor, k: Tensor, v: Tensor, q_starts: Tensor, k_starts: Tensor, longest: Longest,
    pairs: Pairs,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if left_out(q, k, v) or 0 in longest or q_starts.numel() < 2:
        return reference.packed_attention(q, k, v, q_starts, k_starts, longest, pairs)
    form = Form(pairs, None, (q_starts.contiguous(), k_starts.contiguous()), longest)
    y, lse = attend(heads_of(_four(q), _four(k), _four(v), None), form)
    return _three(y), lse[0]


def packed_attention_grad(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, q_starts: Tensor, k_starts: Tensor, y: Tensor,
    lse: Tensor, longest: Longest, pairs: Pairs,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    if left_out(q, k, v) or 0 in longest or q_starts.numel() < 2:
        return reference.packed_attention_grad(
            dy, q, k, v, q_starts, k_starts, y, lse, longest, pairs
        )
    form = Form(pairs, None, (q_starts.contiguous(), k_starts.contiguous()), longest)
    h = heads_of(_four(q), _four(k), _four(v), None)
    dq, dk, dv = attend_grad(dense(_four(dy)), h, dense(_four(y)), lse[None], form)
    return _three(dq), _three(dk), _three(dv)
