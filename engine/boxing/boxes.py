"""Boxes: regions of a tensor's logical index space, and the pieces of shards in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import torch

from ..meta import Box

Piece = tuple[Box, torch.Tensor]  # where a piece lies in the logical tensor, and its values


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


def cut(shard: torch.Tensor, held: Box, region: Box) -> torch.Tensor:
    """The part of a shard that lies in `region`, as a view; the shard itself if that is all."""
    for dim, (start, size, base, whole) in enumerate(
        zip(region[0], region[1], held[0], held[1], strict=True)
    ):
        if size != whole:
            shard = shard.narrow(dim, start - base if size else 0, size)
    return shard


def identity_of(reduction: str, dtype: torch.dtype) -> float | bool:
    """The value that changes nothing under "sum", "max" or "min"."""
    if reduction == "sum":
        return False if dtype == torch.bool else 0
    lowest = reduction == "max"
    if dtype == torch.bool:
        return not lowest
    if dtype.is_floating_point and dtype.itemsize > 1:
        return float("-inf") if lowest else float("inf")
    info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return info.min if lowest else info.max


def assemble(
    pieces: Sequence[Piece],
    box: Box,
    dtype: torch.dtype,
    device: torch.device,
    fill: str | None = None,
) -> torch.Tensor:
    """The shard `box` made of pieces; what they leave open is the identity of reduction `fill`.

    One piece that covers the box is returned as it is, without a copy.
    """
    pieces = [(region, values) for region, values in pieces if volume(region)]
    if len(pieces) == 1 and pieces[0][0] == box:
        return pieces[0][1]
    open_ = volume(box) - sum(volume(region) for region, _ in pieces)
    assert fill is not None or open_ == 0, f"pieces leave {open_} elements of {box} open"
    if open_ and fill is not None:
        out = torch.full(box[1], identity_of(fill, dtype), dtype=dtype, device=device)
    else:
        out = torch.empty(box[1], dtype=dtype, device=device)
    for region, values in pieces:
        cut(out, box, region).copy_(values)
    return out


def reduce(values: Iterable[torch.Tensor], reduction: str) -> torch.Tensor:
    """Addends joined in the given order, so that every rank and world gets the same bits.

    Half-precision sums are accumulated in float32 and rounded once. The result may be the only
    addend itself.
    """
    addends = list(values)
    first = addends[0]
    if len(addends) == 1:
        return first
    if reduction != "sum":
        join = torch.maximum if reduction == "max" else torch.minimum
        out = join(first, addends[1])
        for value in addends[2:]:
            join(out, value, out=out)
        return out
    if first.dtype in (torch.float16, torch.bfloat16) and len(addends) > 2:
        wide = first.float()
        for value in addends[1:]:
            wide += value
        return wide.to(first.dtype)
    out = first + addends[1]
    for value in addends[2:]:
        out += value
    return out
