"""The tile of strided tensors that each program of a pointwise kernel works on.

Dims are ordered by the output's strides and merged where every tensor allows it. The rest forms a
tile of rows and columns: the last dim gives the columns, all others together the rows. If the
elements of an input are contiguous along another dim, that dim alone gives the rows, so that both
sides are accessed in whole cache lines. The remaining dims count batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch import Tensor

from ..reduce.reduction_tiles import cdiv, power_of_2

Ints = tuple[int, ...]

_TILE_BYTES = 4096  # of one tensor in one tile: 32 for each of 128 threads
LARGEST = 2**31 - 2**16  # rows, which are counted in int32
_FEW = 1024  # elements of the two dims of crossing tiles, for which a program has too little to do


@dataclass(frozen=True, slots=True)
class Pattern:
    """What the code depends on: how many dims of each kind there are, and which strides are fixed.

    `strides` has for each tensor and dim 0, 1 or None: known only when the kernel runs.
    """

    batch: int
    rows: int
    strides: tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The pattern, the numbers that it leaves open, and the tile."""

    pattern: Pattern
    sizes: Ints  # of batch dims, row dims and the columns
    strides: Ints  # those that the pattern leaves open, tensor by tensor
    tile: tuple[int, int]  # rows, columns
    programs: int


def order_of(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> list[int]:
    """The dims from the outermost in memory to the innermost, by the first tensor that decides.

    A tensor leaves open how dims lie in which it is broadcast.
    """
    order = list(range(len(shape)))
    for own in strides:
        if all(step or size == 1 for step, size in zip(own, shape, strict=True)):
            return sorted(order, key=[-abs(step) for step in own].__getitem__)
    return order


def dense_strides(shape: Sequence[int], order: Sequence[int]) -> Ints:
    """The strides of a tensor without gaps whose dims lie in this order.

    >>> dense_strides((2, 3, 4), (0, 2, 1))
    (12, 1, 3)
    """
    found = [0] * len(shape)
    step = 1
    for dim in reversed(order):
        found[dim] = step
        step *= max(shape[dim], 1)
    return tuple(found)


def broadcast_strides(x: Tensor, shape: Sequence[int]) -> Ints:
    """The strides of a tensor as if it had the shape to which it broadcasts."""
    missing = len(shape) - x.ndim
    return (0,) * missing + tuple(
        0 if size == 1 else step for size, step in zip(x.shape, x.stride(), strict=True)
    )


def merged(
    shape: Sequence[int], strides: Sequence[Sequence[int]], order: Sequence[int]
) -> tuple[list[int], list[list[int]]]:
    """Sizes and strides with dims of size 1 left out and neighbors made one where all allow it.

    >>> merged((2, 3, 4), [(12, 4, 1), (0, 4, 1)], (0, 1, 2))
    ([2, 12], [[12, 1], [0, 1]])
    """
    sizes: list[int] = []
    found: list[list[int]] = [[] for _ in strides]
    for dim in order:
        size = shape[dim]
        if size == 1:
            continue
        steps = [own[dim] for own in strides]
        if sizes and all(own[-1] == n * size for own, n in zip(found, steps, strict=True)):
            size *= sizes.pop()
            for own in found:
                own.pop()
        sizes.append(size)
        for own, step in zip(found, steps, strict=True):
            own.append(step)
    if not sizes:
        return [1], [[0] for _ in strides]
    return sizes, found


def layout_of(
    shape: Sequence[int],
    strides: Sequence[Sequence[int]],
    order: Sequence[int],
    itemsize: int,
) -> Layout | None:
    """How a kernel runs over tensors of this shape; None where it cannot count the rows.

    `itemsize` is the largest in bytes.
    """
    sizes, found = merged(shape, strides, order)
    across = _crossing(sizes, found)
    last = len(sizes) - 1
    if across is None:
        rows, batch = list(range(last)), []
    else:
        rows, batch = [across], [dim for dim in range(last) if dim != across]
    dims = [*batch, *rows, last]
    height = prod(sizes[dim] for dim in rows)
    if height > LARGEST:
        return None
    tile = tile_of(height, sizes[last], itemsize, across is not None)
    fixed = tuple(tuple(own[dim] if own[dim] in (0, 1) else None for dim in dims) for own in found)
    open_ = tuple(
        own[dim]
        for own, known in zip(found, fixed, strict=True)
        for dim, step in zip(dims, known, strict=True)
        if step is None
    )
    programs = prod(sizes[dim] for dim in batch)
    programs *= cdiv(height, tile[0]) * cdiv(sizes[last], tile[1])
    pattern = Pattern(len(batch), len(rows), fixed)
    return Layout(pattern, tuple(sizes[dim] for dim in dims), open_, tile, programs)


def _crossing(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> int | None:
    """A dim along which a tensor's elements are neighbors that are none along the last.

    Where both are short, tiles of all rows have whole cache lines of both sides as well.
    """
    for own in strides:
        if own[-1] > 1 and 1 in own[:-1]:
            dim = own.index(1)
            few = sizes[dim] * sizes[-1] < _FEW and prod(sizes[:-1]) <= LARGEST
            if sizes[dim] > 1 and not few:
                return dim
    return None


def tile_of(
    rows: int, columns: int, itemsize: int, crossing: bool = False, widest: bool = False
) -> tuple[int, int]:
    """Rows and columns of a tile, powers of two. With `widest`, lanes may be idle."""
    total = _TILE_BYTES // max(itemsize, 2)
    if crossing:
        side = 64 if itemsize <= 2 else 32
        width = min(side, power_of_2(columns))
        height = min(side * side // width, power_of_2(rows))
        return height, min(side * side // height, power_of_2(columns))
    if rows == 1 and not widest:
        return 1, total
    width = whole = min(power_of_2(columns), total)
    if not widest:
        # Narrower columns where the widest would leave more than an eighth of the lanes idle.
        while width > 64 and cdiv(columns, width) * width * 8 > columns * 9:
            width //= 2
        if cdiv(columns, width) * width * 8 > columns * 9:
            width = whole
    return min(power_of_2(rows), total // width), width
