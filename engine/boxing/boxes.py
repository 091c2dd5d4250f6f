"""Boxes: regions of a tensor's logical index space, and the parts of shards inside them."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TypeAlias

import torch

from ..meta import Box

Cut: TypeAlias = tuple[tuple[int, int, int], ...]  # (dim, start, length) of each narrowed dim


def volume(box: Box) -> int:
    """Number of elements of a box."""
    return prod(box[1])


def intersect(one: Box, other: Box) -> Box:
    """The common region of two boxes; of size 0 in some dim when they do not meet."""
    starts, sizes = [], []
    for a, m, b, n in zip(*one, *other, strict=True):
        start = max(a, b)
        starts.append(start)
        sizes.append(max(0, min(a + m, b + n) - start))
    return tuple(starts), tuple(sizes)


def hull(boxes: Iterable[Box]) -> Box:
    """The smallest box that contains all non-empty boxes."""
    full = [box for box in boxes if volume(box)]
    starts = tuple(map(min, zip(*(box[0] for box in full), strict=True)))
    stops = [max(box[0][dim] + box[1][dim] for box in full) for dim in range(len(starts))]
    return starts, tuple(stop - start for start, stop in zip(starts, stops, strict=True))


def cut_out(region: Box, held: Box) -> Cut:
    """How to cut `region` out of a shard that holds the box `held`."""
    return tuple(
        (dim, start - base if size else 0, size)
        for dim, (start, size, base, whole) in enumerate(zip(*region, *held, strict=True))
        if size != whole
    )


def take(shard: torch.Tensor, cut: Cut) -> torch.Tensor:
    """The part of a shard that a cut selects, as a view; the shard itself if that is all of it."""
    for dim, start, length in cut:
        shard = shard.narrow(dim, start, length)
    return shard
