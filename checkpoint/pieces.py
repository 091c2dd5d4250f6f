"""Pieces: the boxes of a tensor that are written, which rank writes each, and who needs them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from ..engine.meta import Box, Meta

PIECE_BYTES = 1 << 24  # about as many: a reader checks whole pieces


class Piece(NamedTuple):
    """A box that one rank writes; `owner` is None for a local tensor."""

    owner: int | None
    holder: int  # the number of the box among those of the tensor's members
    box: Box


def cut(box: Box, itemsize: int, limit: int = PIECE_BYTES) -> Iterator[Box]:
    """A box in boxes of at most `limit` bytes (or of one element), in row-major order.

    >>> [size for _, size in cut(((0, 0), (5, 2)), 4, 16)]
    [(2, 2), (2, 2), (1, 2)]
    """
    offset, size = box
    if math.prod(size) * itemsize <= limit or math.prod(size) == 1:
        yield box
        return
    dim = next(d for d, n in enumerate(size) if n > 1)
    row = math.prod(size[dim + 1 :]) * itemsize
    step = max(1, limit // row)
    for first in range(0, size[dim], step):
        part_offset, part_size = list(offset), list(size)
        part_offset[dim] += first
        part_size[dim] = min(step, size[dim] - first)
        yield from cut((tuple(part_offset), tuple(part_size)), itemsize, limit)


@lru_cache(1024)
def pieces_of(meta: Meta, limit: int = PIECE_BYTES) -> tuple[Piece, ...]:
    """The pieces of a tensor without partial axes: each element is in one of them.

    A box that several members hold is written by the first of them. Every process finds the same.
    """
    if meta.placement is None:
        whole = ((0,) * meta.ndim, tuple(meta.shape))
        return tuple([Piece(None, 0, box) for box in cut(whole, meta.dtype.itemsize, limit)])
    assert not meta.partial
    found: list[Piece] = []
    seen: set[Box] = set()
    for position, rank in enumerate(meta.placement.flat_ranks):
        box = meta.box(position)
        if box not in seen and 0 not in box[1]:
            seen.add(box)
            parts = cut(box, meta.dtype.itemsize, limit)
            found += [Piece(rank, position, part) for part in parts]
    return tuple(found)


def intersection(a: Box, b: Box) -> Box | None:
    """The intersection of two boxes; None if it is empty.

    >>> intersection(((0, 0), (2, 4)), ((1, 2), (5, 5)))
    ((1, 2), (1, 2))
    """
    offset, size = [], []
    for a_offset, a_size, b_offset, b_size in zip(*a, *b, strict=True):
        first = max(a_offset, b_offset)
        length = min(a_offset + a_size, b_offset + b_size) - first
        if length <= 0:
            return None
        offset.append(first)
        size.append(length)
    return tuple(offset), tuple(size)


class Copy(NamedTuple):
    """A part of a piece that goes into one of the wanted boxes."""

    target: int  # the number of the box
    shared: Box


def needed(pieces: Iterable[Box], wanted: Sequence[Box]) -> Iterator[tuple[int, list[Copy]]]:
    """The pieces that hold parts of the wanted boxes: their numbers, and the parts for each box.

    Pieces that no box needs are left out, so they are not read.
    """
    for number, piece in enumerate(pieces):
        copies = []
        for target, box in enumerate(wanted):
            shared = intersection(piece, box)
            if shared is not None:
                copies.append(Copy(target, shared))
        if copies:
            yield number, copies


def within(box: Box, outer: Box) -> tuple[slice, ...]:
    """The index that takes a box out of an array that holds a larger one."""
    return tuple(slice(o - base, o - base + n) for o, n, base in zip(*box, outer[0], strict=True))
