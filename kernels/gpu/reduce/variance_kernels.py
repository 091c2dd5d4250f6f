"""Variance, standard deviation and logsumexp, with partial results per lane.

Variances use Welford's algorithm in each lane and are combined by Chan's formula, so a large mean
costs no accuracy. Exponentials are taken relative to the largest value so far.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from .reduction_tiles import (
    TRITON,
    cdiv,
    first_of,
    from_memory_order,
    in_order,
    memory_order,
    one_group,
    power_of_2,
    reduced_shape,
    tiles,
    wide_of,
)
from .reductions import divisor
from .softmax_kernels import base, risen


@triton.jit
def taken_in(v, mask, exists, seen, mean, squares):
    """Count, mean and sum of (v - mean)**2 of each lane with one element more, where it exists."""
    seen += exists.to(seen.dtype)
    apart = tl.where(mask, v - mean, 0.0)
    mean += apart / tl.maximum(seen, 1.0)
    squares += apart * tl.where(mask, v - mean, 0.0)
    return seen, mean, squares


@triton.jit
def combined(seen, mean, squares):
    """The same of all lanes together."""
    held = tl.sum(seen, 1)
    average = tl.sum(mean * seen, 1) / held
    apart = mean - average[:, None]
    rest = tl.sum(seen * apart, 1)  # what rounding left in the mean
    squares = tl.sum(squares + seen * apart * apart, 1) - rest * rest / held
    return held, average, squares


@triton.jit
def welford(
    x, first, begin, n, chunk, step, inside,
    WIDE: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """Of the elements from `begin` on, `chunk` at most: count, mean, sum of (v - mean)**2."""
    at = tl.arange(0, BR)
    mean = tl.zeros((BK, BR), WIDE)
    squares = tl.zeros((BK, BR), WIDE)
    seen = tl.zeros((1, BR), WIDE)
    for start in range(0, chunk, BR):
        r = begin + start + at
        exists = (r < n)[None, :]
        mask = inside[:, None] & exists
        where = first[:, None] + r[None, :].to(tl.int64) * step
        v = tl.load(x + where, mask=mask, other=0).to(WIDE)
        seen, mean, squares = taken_in(v, mask, exists, seen, mean, squares)
    return combined(seen, mean, squares)


@Kernel
def _variance(
    x, y, means, squares, kept, n, inner, chunk, count,
    LESS: tl.constexpr, ROOT: tl.constexpr, PART: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    index, first, inside = first_of(kept, n, inner, ROWS, BK)
    split = tl.program_id(1).to(tl.int64)
    step = 1 if ROWS else inner
    _, average, m2 = welford(x, first, split * chunk, n, chunk, step, inside, WIDE, BK, BR)
    out = split * kept + index
    if PART:
        tl.store(means + out, average, mask=inside)
        tl.store(squares + out, m2, mask=inside)
    else:
        result = m2 / (tl.full(m2.shape, count, WIDE) - LESS)
        if ROOT:
            result = tl.sqrt(result)
        tl.store(y + out, result.to(y.dtype.element_ty), mask=inside)


@Kernel
def _combine_variance(
    means, squares, y, kept, n, chunk, splits, count,
    LESS: tl.constexpr, ROOT: tl.constexpr, WIDE: tl.constexpr,
    BK: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0) * BK + tl.arange(0, BK)
    part = tl.arange(0, BS)
    mask = (index < kept)[:, None] & (part < splits)[None, :]
    at = part[None, :].to(tl.int64) * kept + index[:, None]
    mean = tl.load(means + at, mask=mask, other=0)
    m2 = tl.load(squares + at, mask=mask, other=0)
    left = n - part.to(tl.int64) * chunk
    held = tl.maximum(tl.minimum(left, chunk), 0).to(WIDE)[None, :]
    _, _, result = combined(held, mean, m2)
    result /= tl.full(result.shape, count, WIDE) - LESS
    if ROOT:
        result = tl.sqrt(result)
    tl.store(y + index, result.to(y.dtype.element_ty), mask=index < kept)


def variance(
    x: Tensor, dims: tuple[int, ...], correction: float, keepdim: bool, root: bool
) -> Tensor:
    """The variance over the dims, or its root; of some elements at least."""
    lies = memory_order(tuple(x.shape), x.stride())
    if lies is not None:
        y = variance(x.permute(lies), in_order(lies, dims), correction, True, root)
        return from_memory_order(y, lies, dims, keepdim)
    y = torch.empty(reduced_shape(x.shape, dims, keepdim), dtype=x.dtype, device=x.device)
    dense, outer, n, inner = one_group(x, dims)
    t = tiles(outer, n, inner)
    count, less = divisor(max(0.0, n - correction))
    wide = wide_of(x.dtype)
    size = (2, t.splits, t.kept) if t.splits > 1 else (2, 0)
    means, squares = torch.empty(size, dtype=wide, device=x.device)
    pointers, constants = (dense, y, means, squares), (less, root, t.splits > 1, TRITON[wide])
    # Three tiles; those of float64 take twice the registers.
    warps = 8 if wide is torch.float64 else 4
    t.launch(_variance, pointers, (t.chunk, count), constants, warps)
    if t.splits > 1:
        parts = power_of_2(t.splits)
        block = max(2048 // parts, 1)
        args = (means, squares, y, t.kept, t.n, t.chunk, t.splits, count)
        _combine_variance.launch(
            (cdiv(t.kept, block),), args, (less, root, TRITON[wide], block, parts)
        )
    return y


@Kernel
def _logsumexp(
    x, y, tops, totals, kept, n, inner, chunk,
    STAGED: tl.constexpr, PART: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    index, first, inside = first_of(kept, n, inner, ROWS, BK)
    split = tl.program_id(1).to(tl.int64)
    begin = split * chunk
    step = 1 if ROWS else inner
    at = tl.arange(0, BR)
    start_of = (first + begin * step)[:, None]
    top = tl.full((BK,), float("-inf"), WIDE)
    total = tl.zeros((BK, BR), WIDE)
    for start in range(0, chunk, BR):
        r = (start + at)[None, :].to(tl.int64)
        mask = inside[:, None] & (begin + r < n)
        v = tl.load(x + start_of + r * step, mask=mask, other=float("-inf")).to(WIDE)
        higher = tl.maximum(top, tl.max(v, 1))
        total = risen(total, top[:, None], higher[:, None])
        e = tl.exp(v - base(higher)[:, None])
        if STAGED:  # v is the maximum of a part, whose sum was found before
            e *= tl.load(totals + start_of + r * step, mask=mask, other=0.0)
        total += tl.where(mask, e, 0.0)
        top = higher
    result = tl.sum(total, 1)
    out = split * kept + index
    if PART:
        # An infinite maximum stays one: below 0 the sums of other parts would be lost.
        tl.store(tops + out, top, mask=inside)
        tl.store(totals + out, result, mask=inside)
    else:
        tl.store(y + out, (tl.log(result) + base(top)).to(y.dtype.element_ty), mask=inside)


def logsumexp_dims(x: Tensor, dims: tuple[int, ...], keepdim: bool, dtype: torch.dtype) -> Tensor:
    """log(sum(exp(x))) over the dims."""
    y = torch.empty(reduced_shape(x.shape, dims, keepdim), dtype=dtype, device=x.device)
    dense, outer, n, inner = one_group(x, dims)
    wide = wide_of(dtype)
    t = tiles(outer, n, inner)
    tops, totals = torch.empty((2, t.splits * t.kept), dtype=wide, device=x.device)
    constants = (False, t.splits > 1, TRITON[wide])
    t.launch(_logsumexp, (dense, y, tops, totals), (t.chunk,), constants)
    if t.splits > 1:
        again = tiles(1, t.splits, t.kept, split=False)
        constants = (True, False, TRITON[wide])
        again.launch(_logsumexp, (tops, y, tops, totals), (again.chunk,), constants)
    return y


_SIZES = ((True, 2, 2048), (False, 128, 32))
CASES = [
    Case(_variance, ("*bf16", "*bf16", "*fp32", "*fp32"), (0.0, False, False, tl.float32, *sizes))
    for sizes in _SIZES
]
CASES += [
    Case(_logsumexp, ("*bf16", "*bf16", "*fp32", "*fp32"), (False, False, tl.float32, *sizes))
    for sizes in _SIZES
]
CASES += [Case(_combine_variance, ("*fp32", "*fp32", "*bf16"), (0.0, False, tl.float32, 8, 256))]
