"""Reads and writes at an index along one dim, for tensors seen as [lead, dim, rest].

An index is a vector that is used for all elements of `lead` and `rest`, or has an entry per
element. Offsets between rows have 64 bits, offsets inside a block have 32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...indexing_ref import check_range
from ..launch.jit_kernel import Kernel
from ..launch.launch_trace import Argument
from ..pointwise.copy_kernels import fill
from ..reduce.reduction_tiles import cdiv, power_of_2

BLOCK = 1024
_ROWS_FROM = 64  # a rest of this many elements has programs of its own for each row
MAX_ACROSS = 65535  # programs along the second dim of a CUDA grid


class Along(NamedTuple):
    """The indexed dim: the tensor holds `size` of its `whole` elements, from `offset` on.

    `padding` is an index without an element. With `wrap`, negative entries count from the end.
    """

    size: int
    offset: int
    whole: int
    padding: int = -1
    wrap: bool = False


def checked(index: Tensor, along: Along, dim: int) -> Tensor:
    """The index as a dense tensor. It is only checked on the CPU, where this does not wait."""
    if index.device.type == "cpu":
        check_range(index, along.whole, dim, -along.whole if along.wrap else 0)
    return index.contiguous()


@triton.jit
def find(i, size, offset, whole, padding, WRAP: tl.constexpr):
    """(the position in the tensor, whether the tensor holds it, whether the index is valid)"""
    i = i.to(tl.int64)
    if WRAP:
        i = tl.where(i < 0, i + whole, i)
    there = (i >= 0) & (i < whole)
    found = i - offset
    return found, there & (found >= 0) & (found < size) & (i != padding), there


@triton.jit
def _split(entries, rest, BLOCK: tl.constexpr):
    """The positions of this program in a flat [lead, entries, rest], and their three parts."""
    plane = tl.full((), entries, tl.int64) * rest  # a size of 1 is a constant of the compiler
    begin = tl.program_id(0).to(tl.int64) * BLOCK
    step = tl.arange(0, BLOCK)
    first = begin % plane
    # 64-bit division of each element would take longer than its memory.
    if plane < BLOCK:
        beyond = (first.to(tl.int32) + step) // plane.to(tl.int32)
    else:
        beyond = (first + step >= plane).to(tl.int32)
    inner = first + step - beyond * plane
    if plane < 2**31:
        entry = (inner.to(tl.int32) // rest).to(tl.int64)
    else:
        entry = inner // rest
    return begin + step, begin // plane + beyond, entry, inner - entry * rest


@triton.jit
def _or_nan(v, there):
    """v, with NaN for invalid indices in floating-point types."""
    if v.dtype.is_floating():
        return tl.where(there, v, float("nan"))
    else:
        return v


@Kernel
def gather_rows(
    x, index, y, rest, entries, size, offset, whole, WRAP: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One block of one row: y[lead, entry, :] = x[lead, index[entry], :]."""
    row = tl.program_id(0).to(tl.int64)
    lead = row // entries
    i = tl.load(index + row % entries)
    found, held, there = find(i, size, offset, whole, -1, WRAP)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + (lead * size + found) * rest + at, mask=held & (at < rest), other=0)
    tl.store(y + row * rest + at, _or_nan(v, there), mask=at < rest)


@Kernel
def gather_each(
    x, index, y, count: tl.int64, rest, entries, size, offset, whole,
    WRAP: tl.constexpr, EACH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at, lead, entry, last = _split(entries, rest, BLOCK)
    inside = at < count
    i = tl.load(index + (at if EACH else entry), mask=inside, other=0)
    found, held, there = find(i, size, offset, whole, -1, WRAP)
    v = tl.load(x + (lead * size + found) * rest + last, mask=inside & held, other=0)
    tl.store(y + at, _or_nan(v, there), mask=inside)


@Kernel
def place_each(
    index, targets, count: tl.int64, rest, entries, size, offset, whole, padding, nowhere: tl.int64,
    WRAP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The position of every entry in the flat tensor, `nowhere` if it is not held."""
    at, lead, _, last = _split(entries, rest, BLOCK)
    inside = at < count
    i = tl.load(index + at, mask=inside, other=0)
    found, held, _ = find(i, size, offset, whole, padding, WRAP)
    place = tl.where(held, (lead * size + found) * rest + last, nowhere)
    tl.store(targets + at, place, mask=inside)


@Kernel
def mark_last(places, last, count: tl.int64, nowhere: tl.int64, BLOCK: tl.constexpr):
    """The number of the last entry for each position."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = tl.load(places + at, mask=at < count, other=0)
    tl.atomic_max(last + place, at, mask=(at < count) & (place < nowhere))


@Kernel
def write_last(
    y, places, last, values, count: tl.int64, rest, entries, size, nowhere: tl.int64,
    EACH: tl.constexpr, ONE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the values (or one value) of the entries that are the last for their position."""
    at, lead, entry, inner = _split(entries, rest, BLOCK)
    inside = at < count
    number = at if EACH else entry
    place = tl.load(places + number, mask=inside, other=0)
    inside &= place < nowhere
    inside &= tl.load(last + place, mask=inside, other=-1) == number
    v = tl.load(values + (at * 0 if ONE else at), mask=inside)
    tl.store(y + (place if EACH else (lead * size + place) * rest + inner), v, mask=inside)


def launch_flat(
    kernel: Kernel, count: int, args: tuple[Argument, ...], *constants: object, warps: int = 4
) -> None:
    """A program for each BLOCK of so many elements. BLOCK is the kernel's last constant."""
    kernel.launch((cdiv(count, BLOCK),), args, (*constants, BLOCK), warps)


def plain(x: Tensor) -> Tensor:
    """x as a dense tensor, bools as bytes."""
    x = x.contiguous()
    return x.view(torch.uint8) if x.dtype is torch.bool else x


def gathered(
    x: Tensor, index: Tensor, lead: int, entries: int, rest: int, along: Along, each: bool
) -> Tensor:
    """The elements at an index as [lead, entries, rest]; 0 for elements that are not held."""
    y = torch.empty((lead, entries, rest), dtype=x.dtype, device=x.device)
    source, result = plain(x), plain(y)
    sizes = (rest, entries, along.size, along.offset, along.whole)
    block = min(power_of_2(rest), 2 * BLOCK)
    grid = (lead * entries, cdiv(rest, block))
    if rest >= _ROWS_FROM and not each and grid[1] <= MAX_ACROSS:
        gather_rows.launch(grid, (source, index, result, *sizes), (along.wrap, block))
    else:
        count = y.numel()
        launch_flat(gather_each, count, (source, index, result, count, *sizes), along.wrap, each)
    return y


def places_of(index: Tensor, entries: int, rest: int, along: Along, nowhere: int) -> Tensor:
    """The target of each entry in a flat [lead, along.size, rest]; `nowhere` if it is not held."""
    count = index.numel()
    places = torch.empty(count, dtype=torch.int64, device=index.device)
    args = (index, places, count, rest, entries, *along[:4], nowhere)
    launch_flat(place_each, count, args, along.wrap, warps=8)  # 64-bit divisions take registers
    return places


def write(
    y: Tensor, places: Tensor, values: Tensor | float, entries: int, rest: int, size: int,
    each: bool,
) -> None:  # fmt: skip
    """Write values, or one number, into a dense y. The last entry for a target wins."""
    nowhere = y.numel() if each else size
    last = fill(torch.empty(nowhere, dtype=torch.int64, device=y.device), -1)
    launch_flat(mark_last, places.numel(), (places, last, places.numel(), nowhere))
    lead = 1 if each else y.numel() // max(size * rest, 1)
    count = places.numel() if each else lead * entries * rest
    one = not isinstance(values, Tensor)
    if not isinstance(values, Tensor):
        values = fill(torch.empty((), dtype=y.dtype, device=y.device), values)
    args = (plain(y), places, last, plain(values), count, rest, entries, size, nowhere)
    launch_flat(write_last, count, args, each, one)
