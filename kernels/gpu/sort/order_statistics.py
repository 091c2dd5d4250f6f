"""kthvalue and median: the element of a given rank, and its first position.

The value is found bit by bit, from the highest: a count of the elements that agree so far and have
a zero there decides the bit. The row stays in registers. Longer rows are sorted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..reduce.reduction_tiles import NUMBERS, cdiv, power_of_2
from .radix_sort import natural, radix_sort

_LONGEST = 16384  # elements of a row: 32 for each of 512 threads
_TILE = 1024  # elements of short rows that share a program
_SEARCHES = 32  # sorted rows of one program


@triton.jit
def _middle(numbers, n, KIND: tl.constexpr):
    """The rank of the median in a row of n elements, of which `numbers` are not NaN."""
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


@triton.jit
def _below(x, n, key):
    """The number of elements with keys below `key` in sorted rows that begin at x."""
    low = tl.zeros(key.shape, tl.int64)
    high = low + n
    while tl.max(high - low) > 0:
        middle = (low + high) // 2
        v = tl.load(x + middle, mask=low < high, other=0)
        below = (low < high) & (natural(v) < key)
        low = tl.where(below, middle + 1, low)
        high = tl.where(below, high, middle)
    return low


@Kernel
def _of_sorted(
    x, order, values, indices, rows: tl.int64, n, k: tl.int64, KIND: tl.constexpr, R: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    inside = row < rows
    first = x + tl.minimum(row, rows - 1) * n
    rank = tl.zeros((R,), tl.int64) + k
    if KIND != "kth":
        numbers = tl.zeros((R,), tl.int64) + n
        if x.dtype.element_ty.is_floating():
            numbers = _below(first, n, natural(tl.full((R,), float("nan"), x.dtype.element_ty)))
        rank = _middle(numbers, n, KIND)
    place = _below(first, n, natural(tl.load(first + rank)))
    tl.store(values + row, tl.load(first + place), mask=inside)
    tl.store(indices + row, tl.load(order + row * n + place, mask=inside), mask=inside)


def suits(x: Tensor, dim: int) -> bool:
    """Whether `of_rank` supports this dim."""
    plainly = x.dtype in NUMBERS and x.dtype is not torch.bool  # torch has none of bools
    return plainly and bool(x.ndim and x.numel())


def results(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Memory for k values of each row, and their indices."""
    values = torch.empty((*rows.shape[:-1], k), dtype=rows.dtype, device=rows.device)
    return values, torch.empty(values.shape, dtype=torch.int64, device=rows.device)


def of_rank(x: Tensor, dim: int, kind: str, k: int = 0) -> tuple[Tensor, Tensor]:
    """Values and first indices, the dim with size 1.

    `kind`: "kth" (counted from 0, NaN last), "median" (NaN where there is one), "nanmedian".
    """
    dense = x.movedim(dim, -1).contiguous()
    n = dense.shape[-1]
    count = dense.numel() // n
    values, indices = results(dense, 1)
    if n > _LONGEST:
        _of_sorted.launch(
            (cdiv(count, _SEARCHES),),
            (*radix_sort(dense), values, indices, count, n, k),
            (kind, _SEARCHES),
            warps=1,
        )
        return values.movedim(-1, dim), indices.movedim(-1, dim)
    block = max(power_of_2(n), 2)
    together = max(_TILE // block, 1)
    bits = 64 if x.dtype in (torch.float64, torch.int64) else 32
    _of_rank.launch(
        (cdiv(count, together),),
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
CASES += [
    Case(
        _of_sorted, (kind, "*i64", kind, "*i64", "i64?", "i32", "i64?"), (what, _SEARCHES), warps=1
    )
    for kind, what in (("*bf16", "nanmedian"), ("*i64", "kth"))
]
