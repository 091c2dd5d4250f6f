"""Padding and its gradient, the gradient of unfold, repeat, repeat_interleave and diag_embed.

In the kernels a tensor is seen as rows, which hold all dims from the first padded one on. A
gradient kernel looks up for each element the positions that were copied from it. So nothing is
written twice, and sums have a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import pad_repeat_ref as reference
from ...pad_repeat_ref import Pads
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..pointwise.copy_kernels import contiguous, copy_into, fill
from ..pointwise.strided_layout import tile_of
from ..reduce.reduction_tiles import NUMBERS, TRITON, cdiv
from ..reduce.reductions import sum_dtype
from .scatter_gather import plain

# Left to torch: dtypes that Triton lacks, and rows of 2^31 elements or more, which are counted
# in int32.

_AT_ONCE = 3  # dims that one launch pads
_LARGEST = 2**31 - 2**16


@triton.jit
def _tile(height, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """(rows, columns, mask) of this program."""
    down = tl.cdiv(height, ROWS)
    program = tl.program_id(0)
    rows = (program % down * ROWS + tl.arange(0, ROWS))[:, None]
    columns = (program // down * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    return rows.to(tl.int64), columns, (rows < height) & (columns < width)


@triton.jit
def _own(place, size, MODE: tl.constexpr):
    """The element that a position of a padded dim is copied from, relative to the first element."""
    if MODE == "circular":
        return (place % size + size) % size
    elif MODE == "replicate":
        return tl.minimum(tl.maximum(place, 0), size - 1)
    else:
        place = tl.abs(place)
        return tl.where(place >= size, 2 * (size - 1) - place, place)


@Kernel
def _pad(
    x, y, height, width, middle, last, size0, size1, size2, before0, before1, before2,
    MODE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Pads three dims; those of y are (width / middle / last, middle, last)."""
    rows, columns, inside = _tile(height, width, ROWS, COLUMNS)
    line = columns // last
    i = _own(line // middle - before0, size0, MODE)
    j = _own(line % middle - before1, size1, MODE)
    k = _own(columns % last - before2, size2, MODE)
    row = x + rows * (size0 * size1 * size2)
    v = tl.load(row + ((i * size1 + j) * size2 + k), mask=inside)
    tl.store(y + rows * width + columns, v, mask=inside)


@triton.jit
def _held(dy, at, place, rest, begin, end, wanted, WIDE: tl.constexpr):
    """The element at a position in [begin, end), or 0 for other positions."""
    wanted = wanted & (place >= begin) & (place < end)
    return tl.load(dy + at + (place - begin) * rest, mask=wanted, other=0).to(WIDE)


@Kernel
def _pad_grad(
    dy, y, height, width, rest, size, before, after,
    MODE: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One dim: y is (height, size, rest), `width` is the product of the last two."""
    rows, columns, inside = _tile(height, width, ROWS, COLUMNS)
    i = columns // rest
    begin, end = -before, size + after
    at = rows * ((size + before + after) * rest) + columns % rest
    v = tl.zeros((ROWS, COLUMNS), WIDE)
    if MODE == "circular":
        v += _held(dy, at, i - size, rest, begin, end, inside, WIDE)
        v += _held(dy, at, i, rest, begin, end, inside, WIDE)
        v += _held(dy, at, i + size, rest, begin, end, inside, WIDE)
    elif MODE == "replicate":
        for k in range(before):
            v += _held(dy, at, begin + k + i * 0, rest, begin, end, inside & (i == 0), WIDE)
        v += _held(dy, at, i, rest, begin, end, inside, WIDE)
        for k in range(after):
            v += _held(dy, at, size + k + i * 0, rest, begin, end, inside & (i == size - 1), WIDE)
    else:
        v += _held(dy, at, -i, rest, begin, end, inside & (i > 0), WIDE)
        v += _held(dy, at, i, rest, begin, end, inside, WIDE)
        v += _held(dy, at, 2 * (size - 1) - i, rest, begin, end, inside & (i < size - 1), WIDE)
    tl.store(y + rows * width + columns, v.to(y.dtype.element_ty), mask=inside)


@Kernel
def _unfold_grad(
    dy, y, height, width, rest, count, size, step,
    WIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """dy is (height, count, rest, size), y (height, length, rest), `width` its last two dims."""
    rows, columns, inside = _tile(height, width, ROWS, COLUMNS)
    i = columns // rest
    at = dy + (rows * count * rest + columns % rest) * size
    over = tl.cdiv(size, step)  # windows that one element may be in
    v = tl.zeros((ROWS, COLUMNS), WIDE)
    for k in range(over):
        window = i // step - (over - 1 - k)
        place = i - window * step
        there = inside & (window >= 0) & (window < count) & (place < size)
        v += tl.load(at + window.to(tl.int64) * rest * size + place, mask=there, other=0).to(WIDE)
    tl.store(y + rows * width + columns, v.to(y.dtype.element_ty), mask=inside)


def _launch(
    kernel: Kernel, x: Tensor, y: Tensor, height: int, width: int, numbers: tuple[int, ...],
    *constants: object,
) -> Tensor:  # fmt: skip
    """Fill y, of rows of this width, and return it."""
    if y.numel():
        tile = tile_of(height, width, x.itemsize)
        grid = (cdiv(height, tile[0]) * cdiv(width, tile[1]),)
        kernel.launch(grid, (plain(x), plain(y), height, width, *numbers), (*constants, *tile))
    return y


def _wider(x: Tensor, pads: Pads) -> list[int]:
    return [size + sum(both) for size, both in zip(x.shape, pads, strict=True)]


def _parts(shape: Sequence[int], pads: Pads) -> list[tuple[int, int, int]]:
    """(size, before, after) of all dims; adjacent dims without padding are merged."""
    found: list[tuple[int, int, int]] = []
    for size, (before, after) in zip(shape, pads, strict=True):
        if found and not (before or after or found[-1][1] or found[-1][2]):
            size *= found.pop()[0]
        found.append((size, before, after))
    return found


def pad(x: Tensor, pads: Pads, mode: str) -> Tensor:
    padded = [dim for dim, (before, after) in enumerate(pads) if before or after]
    if not padded:
        return contiguous(x)
    first = padded[0]
    shape = _wider(x, pads)
    width = prod(shape[first:])
    if x.dtype not in NUMBERS or max(width, prod(x.shape[first:])) > _LARGEST:
        return reference.pad(x, pads, mode)
    parts = _parts(x.shape[first:], pads[first:])
    if len(parts) > _AT_ONCE:
        nothing = [(0, 0)] * x.ndim
        x = pad(x, [*nothing[:first], pads[first], *nothing[first + 1 :]], mode)
        return pad(x, [*nothing[: first + 1], *pads[first + 1 :]], mode)
    parts = [(1, 0, 0)] * (_AT_ONCE - len(parts)) + parts
    sizes, before = [part[0] for part in parts], [part[1] for part in parts]
    middle, last = [sum(part) for part in parts[1:]]
    y = torch.empty(shape, dtype=x.dtype, device=x.device)
    return _launch(_pad, x, y, prod(shape[:first]), width, (middle, last, *sizes, *before), mode)


def pad_grad(dy: Tensor, pads: Pads, mode: str) -> Tensor:
    if not _adds(dy, prod(dy.shape)):
        return reference.pad_grad(dy, pads, mode)
    y = dy
    for dim, (before, after) in enumerate(pads):
        if before or after:
            y = _pad_grad_along(y, dim, before, after, mode)
    return contiguous(dy) if y is dy else y


def _adds(dy: Tensor, width: int) -> bool:
    return dy.dtype in NUMBERS and dy.dtype is not torch.bool and width <= _LARGEST


def _pad_grad_along(dy: Tensor, dim: int, before: int, after: int, mode: str) -> Tensor:
    shape = list(dy.shape)
    shape[dim] -= before + after
    y = torch.empty(shape, dtype=dy.dtype, device=dy.device)
    height, rest = prod(shape[:dim]), prod(shape[dim + 1 :])
    numbers, wide = (rest, shape[dim], before, after), TRITON[sum_dtype(dy.dtype)]
    return _launch(_pad_grad, dy, y, height, shape[dim] * rest, numbers, mode, wide)


def unfold_grad(dy: Tensor, dim: int, length: int, step: int) -> Tensor:
    count, size = dy.shape[dim], dy.shape[-1]
    height, rest = prod(dy.shape[:dim]), prod(dy.shape[dim + 1 : -1])
    width = length * rest
    if not _adds(dy, width):
        return reference.unfold_grad(dy, dim, length, step)
    shape = (*dy.shape[:dim], length, *dy.shape[dim + 1 : -1])
    y = torch.empty(shape, dtype=dy.dtype, device=dy.device)
    numbers, wide = (rest, count, size, step), TRITON[sum_dtype(dy.dtype)]
    return _launch(_unfold_grad, dy, y, height, width, numbers, wide)


def pad_constant(x: Tensor, pads: Pads, value: float) -> Tensor:
    shape = [size + before + after for size, (before, after) in zip(x.shape, pads, strict=True)]
    y = fill(torch.empty(shape, dtype=x.dtype, device=x.device), value)
    inner, source = y, x
    for dim, (before, after) in enumerate(pads):
        size = source.shape[dim] + min(before, 0) + min(after, 0)
        source = source.narrow(dim, max(-before, 0), size)
        inner = inner.narrow(dim, max(before, 0), size)
    copy_into(inner, source)
    return y


def repeat(x: Tensor, times: Sequence[int]) -> Tensor:
    new = len(times) - x.ndim
    if new < 0 or min(times, default=0) < 0:
        return reference.repeat(x, times)  # torch says what is wrong
    sizes = (*(1,) * new, *x.shape)
    apart = [part for both in zip(times, sizes, strict=True) for part in both]
    single = [part for size in sizes for part in (1, size)]
    y = torch.empty(apart, dtype=x.dtype, device=x.device)
    copy_into(y, x.view(single).expand(apart))
    return y.view([count * size for count, size in zip(times, sizes, strict=True)])


def repeat_interleave(x: Tensor, count: int, dim: int) -> Tensor:
    if not x.ndim or count < 0:
        return reference.repeat_interleave(x, count, dim)
    dim %= x.ndim
    shape = (*x.shape[: dim + 1], count, *x.shape[dim + 1 :])
    y = torch.empty(shape, dtype=x.dtype, device=x.device)
    copy_into(y, x.unsqueeze(dim + 1).expand(shape))
    return y.flatten(dim, dim + 1)


def diag_embed(x: Tensor, shape: Sequence[int], offset: int, dim1: int, dim2: int) -> Tensor:
    y = fill(torch.empty(tuple(shape), dtype=x.dtype, device=x.device), 0)
    copy_into(torch.diagonal(y, offset, dim1, dim2), x)
    return y


CASES = [
    *[
        Case(_pad, ("*bf16", "*bf16"), (mode, 1, 2048))
        for mode in ("reflect", "replicate", "circular")
    ],
    *[
        Case(_pad_grad, ("*bf16", "*bf16"), (mode, tl.float32, 1, 2048))
        for mode in ("reflect", "replicate", "circular")
    ],
    Case(_pad, ("*fp32", "*fp32"), ("reflect", 16, 64)),
    Case(_unfold_grad, ("*fp32", "*fp32"), (tl.float32, 1, 1024)),
]
