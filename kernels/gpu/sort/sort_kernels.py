"""sort and topk of rows in registers: a value and its index form one key.

The bits of the value, mapped to an integer of the same order, are the high bits of the key, and the
index is the low ones. So all keys differ, and the sort is stable. Keys have 32 bits where both fit
in these, else 64. Values of more than 32 bits, longer rows and larger k use the radix sort.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import sort_ref as reference
from ..gather.scatter_gather import plain
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..pointwise.copy_kernels import contiguous
from ..reduce.reduction_tiles import NUMBERS, cdiv, power_of_2
from .order_statistics import of_rank, results, suits
from .radix_sort import ordered, radix_sort

# Left to torch: dtypes that Triton lacks; `kthvalue` and medians of a tensor without dims;
# `unique`, whose result's shape depends on values, so that the host must wait anyway.

_LONGEST = 2048  # elements of a row that registers hold, sorted by keys of 64 bits
_LONGEST_NARROW = 4096  # by keys of 32 bits
_MOST = 64  # of topk
_BLOCK = 1024
_NOTHING = tl.constexpr((1 << 63) - 1)  # behind every number
_NOTHING_NARROW = tl.constexpr((1 << 31) - 1)
_NO_VALUE = tl.constexpr(-(1 << 63))  # before every number


@Kernel
def _sort(
    x, values, indices, rows: tl.int64, n, DESCENDING: tl.constexpr, NARROW: tl.constexpr,
    R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * R + tl.arange(0, R))[:, None]
    at = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (at < n)
    key = ordered(tl.load(x + row * n + at, mask=inside, other=0))
    if DESCENDING:
        key = ~key
    if NARROW:
        if x.dtype.element_ty.is_floating():
            key = key >> 13  # below, the keys of 16-bit floats do not differ
        packed = key.to(tl.int32) * BLOCK + at
        packed = tl.sort(tl.where(inside, packed, _NOTHING_NARROW), dim=1)
        place = packed & (BLOCK - 1)
    else:
        packed = (key.to(tl.int64) << 32) | at
        packed = tl.sort(tl.where(inside, packed, _NOTHING), dim=1)
        place = packed & 0xFFFFFFFF
    v = tl.load(x + row * n + place, mask=inside, other=0)
    tl.store(values + row * n + at, v, mask=inside)
    tl.store(indices + row * n + at, place, mask=inside)


@triton.jit
def _best(x, begin, row, rows, n, LARGEST: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr):
    """The K best of a block in order; among equals the first comes first."""
    at = begin + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (at < n)
    key = ordered(tl.load(x + row * n + at, mask=inside, other=0))
    if not LARGEST:
        key = ~key
    packed = (key.to(tl.int64) << 32) | (0x7FFFFFFF - at)
    return tl.topk(tl.where(inside, packed, _NO_VALUE), K, dim=1)


@Kernel
def _topk(
    x, values, indices, rows: tl.int64, n, k, LARGEST: tl.constexpr, R: tl.constexpr,
    BLOCK: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * R + tl.arange(0, R))[:, None]
    best = _best(x, 0, row, rows, n, LARGEST, BLOCK, K)
    for begin in range(BLOCK, n, BLOCK):
        more = _best(x, begin, row, rows, n, LARGEST, BLOCK, K)
        best = tl.topk(tl.reshape(tl.join(best, more), (R, 2 * K)), K, dim=1)
    at = tl.arange(0, K)[None, :]
    inside = (row < rows) & (at < k)
    place = 0x7FFFFFFF - (best & 0xFFFFFFFF)
    v = tl.load(x + row * n + place, mask=inside, other=0)
    tl.store(values + row * k + at, v, mask=inside)
    tl.store(indices + row * k + at, place, mask=inside)


def _are_narrow(dtype: torch.dtype, most: int | None, block: int) -> bool:
    """Whether the keys of rows in a block of this size have 32 bits."""
    if most is not None:
        return (most + 1) * block < 2**31
    return dtype.itemsize <= 2 and block <= _LONGEST_NARROW


def warps_for(block: int) -> int:
    """The warps that sort a block: a thread has eight elements, if there are so many."""
    return min(max(block // 256, 1), 16)


def _of_rows(block: int) -> int:
    """Short rows share a program."""
    return max(256 // block, 1)


def sort(x: Tensor, dim: int, descending: bool, stable: bool) -> tuple[Tensor, Tensor]:
    if not x.numel() or x.dtype not in NUMBERS:
        return reference.sort(x, dim, descending, stable)
    if not x.ndim:
        values, indices = sort(x.reshape(1), dim, descending, stable)
        return values.view(()), indices.view(())
    most = 1 if x.dtype is torch.bool else None
    values, indices = sort_rows(plain(x.movedim(dim, -1)), descending, most)
    return values.view(x.dtype).movedim(-1, dim), indices.movedim(-1, dim)


def sort_rows(
    rows: Tensor, descending: bool = False, most: int | None = None
) -> tuple[Tensor, Tensor]:
    """The sorted values of dense rows (the last dim) and their indices, as torch.sort(stable=True).

    `most` is an upper bound of integers that are known not to be negative.
    """
    n = rows.shape[-1]
    block = max(power_of_2(n), 2)
    narrow = _are_narrow(rows.dtype, most, block)
    wide = rows.itemsize == 8 and (most is None or most >= 2**31)
    if wide or block > (_LONGEST_NARROW if narrow else _LONGEST):
        return radix_sort(rows, descending, most)
    values, indices = results(rows, n)
    count = rows.numel() // n
    together = _of_rows(block)
    _sort.launch(
        (cdiv(count, together),),
        (rows, values, indices, count, n),
        (descending, narrow, together, block),
        warps=warps_for(together * block),
    )
    return values, indices


def topk(x: Tensor, dim: int, k: int, largest: bool, ordered: bool) -> tuple[Tensor, Tensor]:
    plainly = x.dtype in NUMBERS and x.dtype is not torch.bool  # torch has no topk of bools
    if not x.ndim or not plainly or not 0 < k <= x.shape[dim] or not x.numel():
        return reference.topk(x, dim, k, largest, ordered)
    if k > _MOST or x.itemsize == 8:
        values, indices = sort(x, dim, largest, True)
        return contiguous(values.narrow(dim, 0, k)), contiguous(indices.narrow(dim, 0, k))
    rows = x.movedim(dim, -1).contiguous()
    n = rows.shape[-1]
    values, indices = results(rows, k)
    count = rows.numel() // n
    best = max(power_of_2(k), 2)
    block = max(min(power_of_2(n), _BLOCK), best)
    together = _of_rows(block)
    _topk.launch(
        (cdiv(count, together),),
        (rows, values, indices, count, n, k),
        (largest, together, block, best),
        warps=min(max(together * block // 256, 1), 8),
    )
    return values.movedim(-1, dim), indices.movedim(-1, dim)


def kthvalue(x: Tensor, dim: int, k: int) -> tuple[Tensor, Tensor]:
    if not suits(x, dim) or not 0 < k <= x.shape[dim]:
        return reference.kthvalue(x, dim, k)
    return of_rank(x, dim, "kth", k - 1)


CASES = [
    Case(_sort, ("*fp32", "*fp32", "*i64", "i64?", "i32?"), (False, False, 1, 1024)),
    Case(_sort, ("*i64", "*i64", "*i64", "i64?", "i32?"), (False, False, 1, 1024)),
    Case(_sort, ("*i64", "*i64", "*i64", "i64?", "i32?"), (False, True, 1, 1024)),
    Case(_sort, ("*bf16", "*bf16", "*i64", "i64?", "i32?"), (True, True, 16, 16), warps=1),
    Case(_sort, ("*bf16", "*bf16", "*i64", "i64?", "i32?"), (False, True, 1, 4096), warps=16),
    Case(_topk, ("*bf16", "*bf16", "*i64", "i64?", "i32", "i32?"), (True, 1, 1024, 64)),
    Case(_topk, ("*fp32", "*fp32", "*i64", "i64?", "i32", "i32?"), (True, 4, 64, 2), warps=1),
]
