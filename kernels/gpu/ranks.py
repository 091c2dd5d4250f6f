"""Ranks: the value that would stand at a place if a row were sorted, and where it first stands.

The value is found bit by bit, from the highest: how many of the elements that agree so far have a
zero there says which half it is in. The row stays in registers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .cases import Case
from .launch import Kernel

_LONGEST = 16384  # elements of a row: 32 for each of 512 threads
_TILE = 1024  # elements of short rows that share a program
_DTYPES = (
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8,
    torch.int16, torch.int32, torch.int64,
)  # fmt: skip


@triton.jit
def _middle(numbers, n, KIND: tl.constexpr):
    """The rank of a median in a row of n elements, of which so many are numbers."""
    rank = tl.maximum((numbers - 1) // 2, 0)
    return tl.where(numbers < n, n - 1, rank) if KIND == "median" else rank


@Kernel
def _of_rank(
    x, values, indices, rows: tl.int64, n, k: tl.int64,
    KIND: tl.constexpr, BITS: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    at = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows)[:, None] & (at < n)
    v = tl.load(x + row[:, None] * n + at, mask=inside, other=0)
    key = natural(v)
    rank = tl.zeros((R,), tl.int32) + k.to(tl.int32)
    if KIND != "kth":
        rank = _middle(tl.sum((inside & (v == v)).to(tl.int32), 1), n, KIND)
    found = tl.zeros((R,), key.dtype)
    one = tl.full((R,), 1, key.dtype)
    for i in range(BITS):
        bit = BITS - 1 - i
        alike = inside & ((key >> bit) == (found >> bit)[:, None])
        zeros = tl.sum(alike.to(tl.int32), 1)
        high = rank >= zeros
        rank = tl.where(high, rank - zeros, rank)
        found = tl.where(high, found | (one << bit), found)
    here = inside & (key == found[:, None])
    place = tl.min(tl.where(here, at, BLOCK), 1)
    value = tl.load(x + row * n + place, mask=(row < rows) & (place < n), other=0)
    tl.store(values + row, value, mask=row < rows)
    tl.store(indices + row, place.to(tl.int64), mask=row < rows)


def suits(x: Tensor, dim: int) -> bool:
    """Whether `of_rank` finds values along this dim."""
    some = bool(x.ndim and x.numel()) and x.dtype in _DTYPES
    return some and x.shape[dim] <= _LONGEST


def of_rank(x: Tensor, dim: int, kind: str, k: int = 0) -> tuple[Tensor, Tensor]:
    """Values and first indices, the dim with size 1.

    `kind`: "kth" (counted from 0, NaN last), "median" (NaN where there is one), "nanmedian".
    """
    dense = x.movedim(dim, -1).contiguous()
    n = dense.shape[-1]
    count = dense.numel() // n
    values = torch.empty((*dense.shape[:-1], 1), dtype=x.dtype, device=x.device)
    indices = torch.empty(values.shape, dtype=torch.int64, device=x.device)
    block = max(int(triton.next_power_of_2(n)), 2)
    together = max(_TILE // block, 1)
    bits = 64 if x.dtype in (torch.float64, torch.int64) else 32
    _of_rank.launch(
        (triton.cdiv(count, together),),
        (dense, values, indices, count, n, k),
        (kind, bits, together, block),
        warps=min(max(together * block // 256, 1), 16),
    )
    return values.movedim(-1, dim), indices.movedim(-1, dim)


CASES = [
    Case(
        _of_rank,
        (kind, kind, "*i64", "i64?", "i32?", "i64?"),
        (what, bits, rows, block),
        warps=warps,
    )
    for kind, what, bits, rows, block, warps in (
        ("*fp32", "kth", 32, 1, 16384, 16),
        ("*bf16", "median", 32, 16, 64, 4),
        ("*i64", "kth", 64, 1, 2048, 8),
    )
]
