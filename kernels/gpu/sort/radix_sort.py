"""Radix sort of rows of any length, by eight bits of their keys at a time, the lowest first.

The digits of each block are counted. Running sums of these counts, over digits first and then over
blocks, give the position at which the elements of a block with a digit begin. A block is then
sorted by its digits, so that neighbors are written side by side, and each element is moved to its
position. So the sort is stable and deterministic. Values are moved unchanged; keys are computed
from them where needed. Source: Satish, Harris and Garland, "Designing efficient sorting algorithms
for manycore GPUs" (2009).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..reduce.reduction_tiles import cdiv, power_of_2
from ..reduce.scan_kernels import scan

_BITS = 8  # of a digit
_DIGITS = tl.constexpr(1 << _BITS)
_BLOCK = (
    2048  # of which each digit has eight elements on average: 32 bytes that are written at once
)
_WARPS = 8
# The bits of `natural` that differ between numbers of a type.
_OF_FLOATS = {
    torch.float16: range(13, 32, _BITS),
    torch.bfloat16: range(16, 32, _BITS),
    torch.float32: range(0, 32, _BITS),
    torch.float64: range(0, 64, _BITS),
}


@triton.jit
def ordered(v):
    """An integer key with the order of the values, 64-bit for 64-bit values, else 32-bit.

    NaN is last, and -0 equals 0.
    """
    if v.dtype.is_floating():
        if v.dtype == tl.float64:
            v += 0.0
            bits = v.to(tl.int64, bitcast=True)
            key = bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)
            return tl.where(v != v, 0x7FFFFFFFFFFFFFFF, key)
        else:
            v = v.to(tl.float32) + 0.0
            bits = v.to(tl.int32, bitcast=True)
            key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
            return tl.where(v != v, 0x7FFFFFFF, key)
    else:
        return v if v.dtype == tl.int64 else v.to(tl.int32)


@triton.jit
def natural(v):
    """`ordered` as an unsigned number."""
    key = ordered(v)
    if key.dtype == tl.int64:
        return key.to(tl.uint64, bitcast=True) ^ (1 << 63)
    else:
        return key.to(tl.uint32, bitcast=True) ^ (1 << 31)


@triton.jit
def _digits(v, shift, LEAST: tl.constexpr, DESCENDING: tl.constexpr):
    """The digits of the values' keys. The smallest integer has zeros only."""
    key = natural(v) if v.dtype.is_floating() else ordered(v) ^ LEAST
    digit = ((key >> shift.to(key.dtype)) & (_DIGITS - 1)).to(tl.int32)
    return _DIGITS - 1 - digit if DESCENDING else digit


@triton.jit
def _of_program(blocks):
    """The row and the block of this program."""
    program = tl.program_id(0)
    return (program // blocks).to(tl.int64), (program % blocks).to(tl.int64)


@Kernel
def _count(
    x, counts, n, blocks, shift: tl.int64,
    LEAST: tl.constexpr, DESCENDING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The counts of each digit in each block, as [row, digit, block]."""
    row, block = _of_program(blocks)
    at = block * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0)
    digit = tl.where(at < n, _digits(v, shift, LEAST, DESCENDING), 0)
    digits = tl.arange(0, _DIGITS)
    missing = tl.maximum((block + 1) * BLOCK - n, 0).to(tl.int32)  # counted as zeros
    found = tl.histogram(digit, _DIGITS) - tl.where(digits == 0, missing, 0)
    tl.store(counts + (row * _DIGITS + digits) * blocks + block, found)


@Kernel
def _place(
    x, order, counts, ends, values, indices, n, blocks, shift: tl.int64,
    FIRST: tl.constexpr, LEAST: tl.constexpr, DESCENDING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, block = _of_program(blocks)
    own = tl.arange(0, BLOCK)
    inside = block * BLOCK + own < n
    begin = row * n + block * BLOCK
    v = tl.load(x + begin + own, mask=inside, other=0)
    digit = tl.where(inside, _digits(v, shift, LEAST, DESCENDING), _DIGITS)
    packed = tl.sort(digit * BLOCK + own)  # all differ, so equal digits keep their order
    digit, source = packed // BLOCK, packed % BLOCK
    group = (row * _DIGITS + tl.arange(0, _DIGITS)) * blocks + block
    count = tl.load(counts + group)
    # The first of a digit goes to `ends - count`, and stands at `cumsum - count` in the block.
    shifted = tl.load(ends + group) - tl.cumsum(count, 0)
    to = row * n + tl.gather(shifted, tl.minimum(digit, _DIGITS - 1), 0) + own
    v = tl.load(x + begin + source, mask=inside, other=0)  # from the first-level cache
    place = block * BLOCK + source
    if not FIRST:
        place = tl.load(order + begin + source, mask=inside, other=0).to(tl.int64)
    tl.store(values + to, v.to(values.dtype.element_ty), mask=inside)
    tl.store(indices + to, place.to(indices.dtype.element_ty), mask=inside)


def _shifts(dtype: torch.dtype, most: int | None) -> tuple[range, int]:
    """The shifts of a type's digits, and its smallest number (0 for floats)."""
    if dtype.is_floating_point:
        return _OF_FLOATS[dtype], 0
    if most is None:
        return range(0, 8 * dtype.itemsize, _BITS), torch.iinfo(dtype).min
    return range(0, max(most.bit_length(), 1), _BITS), 0


def radix_sort(
    x: Tensor, descending: bool = False, most: int | None = None, block: int = _BLOCK
) -> tuple[Tensor, Tensor]:
    """Like `sort_kernels.sort_rows`, for rows of any length and values of any size."""
    n, dtype = x.shape[-1], x.dtype
    block = min(power_of_2(n), block)
    blocks = cdiv(n, block)
    rows = x.numel() // n
    grid = (rows * blocks,)
    shifts, least = _shifts(x.dtype, most)
    constants = (least, descending, block)
    counts = torch.empty((rows, blocks << _BITS), dtype=torch.int32, device=x.device)
    # Between the passes numbers stand in as few bytes as hold them.
    narrow = x.dtype if most is None or most >= 2**31 else torch.int32
    places = torch.int32 if n < 2**31 else torch.int64
    order: Tensor | None = None
    for shift in shifts:
        last = shift == shifts[-1]
        values = torch.empty(x.shape, dtype=dtype if last else narrow, device=x.device)
        indices = torch.empty(x.shape, dtype=torch.int64 if last else places, device=x.device)
        _count.launch(grid, (x, counts, n, blocks, shift), constants, warps=_WARPS)
        ends = scan(counts, 1, False, False)
        _place.launch(
            grid,
            (x, order, counts, ends, values, indices, n, blocks, shift),
            (order is None, *constants),
            warps=_WARPS,
        )
        x, order = values, indices
    assert order is not None
    return x, order


_PLACED = ("*i32", "*i64")  # counts, ends

CASES = [
    Case(_count, (kind, "*i32", "i32", "i32?", "i64?"), (least, False, _BLOCK), _WARPS)
    for kind, least in (("*fp32", 0), ("*i64", 0), ("*i64", -(2**63)))
]
CASES += [
    Case(
        _place,
        (kind, order, *_PLACED, to, indices, "i32", "i32?", "i64?"),
        (order is None, least, descending, _BLOCK),
        warps=_WARPS,
    )
    for kind, order, to, indices, least, descending in (
        ("*i64", None, "*i32", "*i32", 0, False),
        ("*i32", "*i32", "*i64", "*i64", 0, False),
        ("*fp32", "*i32", "*fp32", "*i32", 0, False),
        ("*bf16", "*i32", "*bf16", "*i64", 0, True),
        ("*fp64", "*i32", "*fp64", "*i32", 0, False),
    )
]
