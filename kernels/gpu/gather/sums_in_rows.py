"""Sums by target inside of rows that fit in registers: one program sorts a row and adds its runs.

A target and the place of its entry form one 32-bit key, so entries of a target are added in their
order, by a scan whose order is fixed. Longer rows are sorted in memory; see `segment_reduce`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..pointwise.copy_kernels import fill
from ..reduce.reduction_tiles import power_of_2
from ..reduce.reductions import sum_dtype
from ..sort.sort_kernels import warps_for
from ..update.pointer_table import DTYPES
from .scatter_gather import Along, find

_LONGEST = 4096  # entries of a row


@triton.jit
def _add_run(target, total, next_target, value):
    """The running sum of a run, which restarts where the target changes."""
    return next_target, tl.where(target == next_target, total + value, value)


@Kernel
def _sums(
    index, source, y, entries, size, offset, whole, padding,
    WRAP: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < entries
    i = tl.load(index + row * entries + at, mask=inside, other=0)
    found, held, _ = find(i, size, offset, whole, padding, WRAP)
    target = tl.where(inside & held, found, size).to(tl.int32)
    packed = tl.sort(target * BLOCK + at)
    target, place = packed // BLOCK, packed % BLOCK
    held = target < size
    v = tl.load(source + row * entries + place, mask=held, other=0).to(WIDE)
    _, total = tl.associative_scan((target, v), 0, _add_run)
    following = tl.gather(target, tl.minimum(at + 1, BLOCK - 1), 0)
    ends = (following != target) | (at == BLOCK - 1)
    tl.store(y + row * size + target, total.to(y.dtype.element_ty), mask=held & ends)


def fit(entries: int, size: int, dtype: torch.dtype) -> bool:
    """Whether rows of so many entries, and so many targets, can be sorted in registers."""
    keys = (size + 1) * power_of_2(entries)
    return 0 < entries <= _LONGEST and keys < 2**31 and sum_dtype(dtype) in DTYPES


def sums_in_rows(index: Tensor, source: Tensor, along: Along) -> Tensor:
    """The sums of a row's entries by target, as [rows, along.size].

    `index` and `source` are dense, [rows, entries].
    """
    rows, entries = index.shape
    y = torch.empty((rows, along.size), dtype=source.dtype, device=source.device)
    fill(y, 0)
    block = max(power_of_2(entries), 2)
    _sums.launch(
        (rows,),
        (index, source, y, entries, *along[:4]),
        (along.wrap, DTYPES[sum_dtype(source.dtype)], block),
        warps=warps_for(block),
    )
    return y


CASES = [
    Case(
        _sums,
        ("*i64", f"*{dtype}", f"*{dtype}", *("i32",) * 3, "i32", "i32?"),
        (False, tl.float32, block),
        warps=warps_for(block),
    )
    for dtype, block in (("bf16", 4096), ("fp32", 1024))
]
