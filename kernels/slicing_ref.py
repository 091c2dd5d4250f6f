"""Slices of shards: the part of a logical slice that one shard holds, and where it goes.

An index has an entry per dim of the logical tensor: a `slice` with bounds inside the dim, or an
int, which removes the dim. A shard holds the box (offset, size) of the logical tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from torch import Tensor

Index: TypeAlias = Sequence[slice | int]
Cuts: TypeAlias = tuple[tuple[slice | int, ...], tuple[slice, ...]]


def overlap(index: Index, offset: Sequence[int], size: Sequence[int]) -> Cuts | None:
    """How a logical slice meets a shard: (index into the shard, place in the slice's result).

    None when they do not meet. Places are relative to the whole slice, in every dim that stays.

    Example: `overlap([slice(1, 7, 2)], [4], [4])` is `((slice(1, 3, 2),), (slice(2, 3),))`.
    """
    mine: list[slice | int] = []
    place: list[slice] = []
    for entry, start, length in zip(index, offset, size, strict=True):
        if isinstance(entry, int):
            if not start <= entry < start + length:
                return None
            mine.append(entry - start)
            continue
        step = entry.step or 1
        # The first and last of entry.start + n * step that lie inside [start, start + length).
        count = len(range(entry.start, entry.stop, step))
        first = max(0, -(-(start - entry.start) // step))
        last = min(count, -(-(start + length - entry.start) // step))
        if first >= last and count:
            return None
        begin = entry.start + first * step - start
        mine.append(slice(begin, begin + max(0, (last - first - 1) * step + 1), step))
        place.append(slice(first, max(first, last)))
    return tuple(mine), tuple(place)


def take(x: Tensor, cuts: Cuts | None, shape: Sequence[int]) -> Tensor:
    """The slice's result as this shard knows it: its own part, zeros elsewhere."""
    y = x.new_zeros(shape)
    if cuts is not None:
        mine, place = cuts
        y[place] = x[mine]
    return y


def put(dy: Tensor, cuts: Cuts | None, shape: Sequence[int]) -> Tensor:
    """A shard of zeros with its part of the slice's values `dy` in place."""
    dx = dy.new_zeros(shape)
    if cuts is not None:
        mine, place = cuts
        dx[mine] = dy[place]
    return dx


def put_into(x: Tensor, value: Tensor | None, cuts: Cuts | None) -> Tensor:
    """A copy of the shard with its part of the slice's values (None: zeros) in place."""
    y = x.clone()
    if cuts is not None:
        mine, place = cuts
        y[mine] = 0 if value is None else value[place]
    return y
