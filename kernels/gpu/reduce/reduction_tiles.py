"""Tiles of reductions: a tensor as (outer, reduced, inner), and the part of each program.

A program has BK kept elements, each with everything that is reduced to it, or with one chunk of
that where few elements are kept. It reads BR of them at a time. With inner size 1 it reads along
rows, otherwise across columns, so that neighboring threads always read neighboring memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch.jit_kernel import Kernel
from ..launch.launch_trace import Argument

NUMBERS = {
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool,
}  # fmt: skip
_TILE = 4096  # elements of a tile: 32 for each thread of 4 warps
_FEW = 256  # with fewer programs the chip is not full
_MANY = 1024


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a tensor of shape (outer, n, inner) is shared out among programs."""

    outer: int
    n: int
    inner: int
    rows: bool
    kept_block: int
    block: int
    splits: int
    chunk: int
    warps: int = 4  # of a program

    @property
    def kept(self) -> int:
        return self.outer * self.inner

    @property
    def grid(self) -> tuple[int, int]:
        return self.programs, self.splits

    @property
    def fitting_warps(self) -> int:
        """So many that each thread has 32 elements of a tile, or 64 of the largest."""
        return min(max(self.kept_block * self.block // 1024, 1), 16)

    @property
    def programs(self) -> int:
        if self.rows:
            return cdiv(self.outer, self.kept_block)
        return self.outer * cdiv(self.inner, self.kept_block)

    def launch(
        self, kernel: Kernel, pointers: Sequence[Argument], numbers: Sequence[Argument],
        constants: Sequence[object], warps: int = 0, fused: bool = True,
    ) -> None:  # fmt: skip
        """Launch a kernel whose numbers begin with `first_of`'s, and whose constants end so."""
        args = (*pointers, self.kept, self.n, self.inner, *numbers)
        form = (*constants, self.rows, self.kept_block, self.block)
        kernel.launch(self.grid, args, form, warps or self.warps, fused=fused)


def power_of_2(size: int) -> int:
    """The least power of 2 that is not smaller."""
    return 1 << max(size - 1, 0).bit_length()


def cdiv(size: int, block: int) -> int:
    """How many blocks cover so many elements. Triton's own takes microseconds on the host."""
    return -(-size // block)


@lru_cache(maxsize=4096)
def tiles(outer: int, n: int, inner: int, split: bool = True, widest: int = 2048) -> Tiles:
    """The rule's tiles for this shape: the same for every GPU.

    `split`: whether a program may have one chunk only of what is reduced; `widest`: the most
    elements of a row that one tile has.
    """
    rows = inner == 1
    if rows:
        block = min(power_of_2(n), widest)
        kept_block = max(min(_TILE // block, power_of_2(cdiv(outer, _FEW))), 1)
    else:
        kept_block = min(power_of_2(inner), 128)
        block = min(power_of_2(n), max(_TILE // kept_block, 1))
    found = Tiles(outer, n, inner, rows, kept_block, block, 1, _up(n, block))
    programs = found.programs
    if not split or programs >= _FEW or n <= 4 * block:
        return found
    splits = min(cdiv(n, 4 * block), cdiv(_MANY, programs))
    chunk = _up(cdiv(n, splits), block)
    return replace(found, splits=cdiv(n, chunk), chunk=chunk)


@lru_cache(maxsize=4096)
def holding(outer: int, n: int, inner: int, most: int) -> Tiles:
    """Tiles that hold all that is reduced to an element, where that is `most` or less of a row.

    Of columns, 16 at least are read side by side, and 1024 elements of each are held.
    """
    whole = power_of_2(n)
    if inner == 1:
        t = tiles(outer, n, inner, False, whole if whole <= most else 8192)
    elif whole > 1024:
        t = Tiles(outer, n, inner, False, min(power_of_2(inner), 16), 256, 1, _up(n, 256))
    else:
        kept = min(power_of_2(inner), max(16, min(_TILE // whole, 128)))
        t = Tiles(outer, n, inner, False, kept, whole, 1, whole)
    return replace(t, warps=t.fitting_warps)


def narrow(outer: int, n: int, inner: int) -> Tiles:
    """Tiles of 16 columns that have much of each, so that several programs share short sums."""
    kept = min(power_of_2(inner), 16)
    block = min(power_of_2(n), _TILE // kept)
    return Tiles(outer, n, inner, False, kept, block, 1, _up(n, block), 8)


def _up(size: int, step: int) -> int:
    return cdiv(size, step) * step


def groups(shape: Sequence[int], dims: Sequence[int]) -> list[tuple[int, bool]]:
    """The sizes of runs of dims that are all kept (False) or all reduced (True), in their order.

    >>> from onefold.kernels.gpu.reduce.reduction_tiles import groups
    >>> groups((2, 3, 1, 5), (2, 3))
    [(6, False), (5, True)]
    """
    return joined((size, dim in dims) for dim, size in enumerate(shape))


def last_group(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """The last of the runs of reduced dims, see `groups`.

    >>> from onefold.kernels.gpu.reduce.reduction_tiles import last_group
    >>> last_group((2, 3, 4, 5), (0, 2, 3)), last_group((2, 3, 4, 5), (0, 1))
    ((2, 3), (0, 1))
    """
    found: list[int] = []
    for dim in reversed(range(len(shape))):
        if dim in dims:
            found.append(dim)
        elif found and shape[dim] != 1:
            break
    return tuple(reversed(found))


def joined(runs: Iterable[tuple[int, bool]]) -> list[tuple[int, bool]]:
    """The runs with neighbors of a kind made one, without those of size 1."""
    found: list[tuple[int, bool]] = []
    for size, reduced in runs:
        if size == 1:
            continue
        if found and found[-1][1] == reduced:
            size *= found.pop()[0]
        found.append((size, reduced))
    return found


def one_group(x: Tensor, dims: Sequence[int]) -> tuple[Tensor, int, int, int]:
    """Dense memory of x as (outer, n, inner) with the dims as n, and these three sizes.

    Dims that do not lie side by side are moved to the end, which copies x.
    """
    order, sizes = _one_group(x.shape, tuple(dims))
    if order is not None:
        x = x.permute(order)
    return x.contiguous(), *sizes


@lru_cache(maxsize=4096)
def _one_group(
    shape: tuple[int, ...], dims: tuple[int, ...]
) -> tuple[tuple[int, ...] | None, tuple[int, int, int]]:
    """The order of the dims, where it must change, and (outer, n, inner)."""
    found = groups(shape, dims)
    if [reduced for _, reduced in found].count(True) <= 1:
        return None, triple(found)
    kept = tuple(dim for dim in range(len(shape)) if dim not in dims)
    return (*kept, *dims), (prod(shape[dim] for dim in kept), prod(shape[dim] for dim in dims), 1)


def triple(found: list[tuple[int, bool]]) -> tuple[int, int, int]:
    """(outer, n, inner) of groups of which one at most is reduced."""
    at = next((i for i, (_, reduced) in enumerate(found) if reduced), len(found))
    outer = prod(size for size, _ in found[:at])
    n = found[at][0] if at < len(found) else 1
    return outer, n, prod(size for size, _ in found[at + 1 :])


@lru_cache(maxsize=4096)
def memory_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """The dims of a tensor from the outermost in memory to the innermost.

    None if they lie in row-major order, or if there are gaps between them.

    >>> from onefold.kernels.gpu.reduce.reduction_tiles import memory_order
    >>> memory_order((2, 3, 4, 5), (60, 1, 15, 3))  # channels-last
    (0, 2, 3, 1)
    """
    order = tuple(sorted(range(len(shape)), key=lambda dim: -strides[dim]))
    step = 1
    for dim in reversed(order):
        if shape[dim] != 1 and strides[dim] != step:
            return None
        step *= shape[dim]
    steps = [dim for dim in order if shape[dim] != 1]
    return None if steps == sorted(steps) else order


def in_order(order: tuple[int, ...], dims: Sequence[int]) -> tuple[int, ...]:
    """The places of some dims in an order of all."""
    return tuple(sorted(order.index(dim) for dim in dims))


def from_memory_order(
    y: Tensor, order: tuple[int, ...], dims: tuple[int, ...], keepdim: bool
) -> Tensor:
    """A result whose dims are in memory order, with the reduced ones of size 1, as it is asked."""
    y = y.permute([order.index(dim) for dim in range(len(order))])
    return y if keepdim else y.squeeze(dims)


def dims_of(dim: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """The reduced dims, counted from 0; None and () mean all of them."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    given = (dim,) if isinstance(dim, int) else dim
    return tuple(sorted(d % ndim for d in given)) if ndim else ()


def reduced_shape(shape: Sequence[int], dims: Sequence[int], keepdim: bool) -> tuple[int, ...]:
    """The shape of the result of a reduction over these dims."""
    if keepdim:
        return tuple(1 if dim in dims else size for dim, size in enumerate(shape))
    return tuple(size for dim, size in enumerate(shape) if dim not in dims)


def wide_of(dtype: torch.dtype) -> torch.dtype:
    """What numbers of this dtype are worked on as."""
    if dtype.is_floating_point:
        return torch.float64 if dtype is torch.float64 else torch.float32
    return torch.int64 if dtype is torch.int64 else torch.int32


TRITON = {
    torch.float32: tl.float32,
    torch.float64: tl.float64,
    torch.int32: tl.int32,
    torch.int64: tl.int64,
}


@triton.jit
def first_of(kept, n, inner, ROWS: tl.constexpr, BK: tl.constexpr):
    """Of the kept elements of this program: index, where the first of each lies, which exist."""
    pid = tl.program_id(0)
    at = tl.arange(0, BK)
    if ROWS:
        index = pid.to(tl.int64) * BK + at
        return index, index * n, index < kept
    else:
        blocks = tl.cdiv(inner, BK)
        outer = (pid // blocks).to(tl.int64)
        column = (pid % blocks) * BK + at
        return outer * inner + column, outer * n * inner + column, column < inner


@triton.jit
def block_at(first, inside, start, n, step, BR: tl.constexpr):
    """Where BR elements from `start` on lie that are reduced to kept ones, and which exist."""
    r = (start + tl.arange(0, BR))[None, :]
    return first[:, None] + r.to(tl.int64) * step, inside[:, None] & (r < n)


@triton.jit
def is_nan(v):
    """Where v is no number."""
    return v != v


@triton.jit
def times(a, b):
    """The product, for reductions and scans."""
    return a * b


@triton.jit
def widened(v):
    """In the dtype that half types are worked on in."""
    return v if v.dtype == tl.float64 else v.to(tl.float32)
