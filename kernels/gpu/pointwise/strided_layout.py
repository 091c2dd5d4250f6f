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

Ints = tuple[int, ...]

_TILE_BYTES = 4096  # of one tensor in one tile: 32 for each of 128 threads
_LARGEST = 2**31 - 2**16  # rows, which are counted in int32


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
    shape: Sequence[int], strides: Sequence[Sequence[int]], order: Sequence[int], apart: int = 0
) -> tuple[list[int], list[list[int]]]:
    """Sizes and strides with dims of size 1 left out and neighbours made one where all allow it.

    The last `apart` dims of the order stay on their own.

    >>> merged((2, 3, 4), [(12, 4, 1), (0, 4, 1)], (0, 1, 2))
    ([2, 12], [[12, 1], [0, 1]])
    """
    sizes: list[int] = []
    found: list[list[int]] = [[] for _ in strides]
    for place, dim in enumerate(order):
        alone = place >= len(order) - apart
        if shape[dim] == 1 and not alone:
            continue
        steps = [own[dim] for own in strides]
        joins = sizes and not alone and all(
            own[-1] == step * shape[dim] for own, step in zip(found, steps, strict=True)
        )  # fmt: skip
        if joins:
            sizes[-1] *= shape[dim]
            for own, step in zip(found, steps, strict=True):
                own[-1] = step
        else:
            sizes.append(shape[dim])
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
    reduced: bool = False,
) -> Layout | None:
    """How a kernel runs over tensors of this shape; None where it cannot count the rows.

    `itemsize` is the largest in bytes. With `reduced` the last dim of the order is reduced over:
    it gives the columns.
    """
    sizes, found = merged(shape, strides, order, apart=1 if reduced else 0)
    across = None if reduced else _crossing(sizes, found)
    last = len(sizes) - 1
    if across is None:
        rows, batch = list(range(last)), []
    else:
        rows, batch = [across], [dim for dim in range(last) if dim != across]
    dims = [*batch, *rows, last]
    height = prod(sizes[dim] for dim in rows)
    if height > _LARGEST:
        return None
    tile = tile_of(height, sizes[last], max(itemsize, 1), across is not None, reduced)
    fixed = tuple(tuple(own[dim] if own[dim] in (0, 1) else None for dim in dims) for own in found)
    open_ = tuple(
        own[dim]
        for own, known in zip(found, fixed, strict=True)
        for dim, step in zip(dims, known, strict=True)
        if step is None
    )
    programs = _parts(height, tile[0]) * prod(sizes[dim] for dim in batch)
    if not reduced:
        programs *= _parts(sizes[last], tile[1])
    pattern = Pattern(len(batch), len(rows), fixed)
    return Layout(pattern, tuple(sizes[dim] for dim in dims), open_, tile, programs)


def _crossing(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> int | None:
    """A dim along which a tensor's elements are neighbours that are none along the last."""
    for own in strides:
        if own[-1] > 1 and 1 in own[:-1]:
            dim = own.index(1)
            if sizes[dim] > 1:
                return dim
    return None


def _parts(size: int, block: int) -> int:
    return -(-size // block)


def tile_of(
    rows: int, columns: int, itemsize: int, crossing: bool, reduced: bool
) -> tuple[int, int]:
    """Rows and columns of a tile, powers of two."""
    total = _TILE_BYTES // max(itemsize, 2)
    if crossing:
        side = 64 if itemsize <= 2 else 32
        return min(side, _power(rows)), min(side, _power(columns))
    if rows == 1 and not reduced:
        return 1, total
    width = min(_power(columns), total)
    if not reduced:
        # Narrower columns where the widest would leave more than an eighth of the lanes idle.
        while width > 64 and _parts(columns, width) * width * 8 > columns * 9:
            width //= 2
        if _parts(columns, width) * width * 8 > columns * 9:
            width = min(_power(columns), total)
    return min(_power(rows), total // width), width


def _power(size: int) -> int:
    """The least power of two that is no smaller."""
    return 1 << max(size - 1, 0).bit_length()
