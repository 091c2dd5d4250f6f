"""Combines the pieces that a rank receives. The arithmetic is the same in both worlds."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..meta import Box
from .boxes import cut_out, take, volume

Values = dict[int, torch.Tensor]  # the shards of the ranks that this process owns


def reduce(addends: Sequence[torch.Tensor], reduction: str) -> torch.Tensor:
    """Addends reduced in the given order, so that every rank and world gets the same bits.

    Half-precision sums of three or more are accumulated in float32 and rounded once. New
    memory, unless there is one addend only.
    """
    first = addends[0]
    if len(addends) == 1:
        return first
    if reduction != "sum":
        join = torch.maximum if reduction == "max" else torch.minimum
        out = join(first, addends[1])
        for value in addends[2:]:
            out = join(out, value)
        return out
    if len(addends) > 2 and first.dtype in (torch.float16, torch.bfloat16):
        wide = first.float()
        for value in addends[1:]:
            wide += value
        return wide.to(first.dtype)
    out = first + addends[1]
    for value in addends[2:]:
        out += value
    return out


def identity(
    shape: Sequence[int], reduction: str, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """The identity element of "sum", "max" or "min" as a tensor."""
    if reduction == "sum":
        return torch.zeros(shape, dtype=dtype, device=device)
    lowest = reduction == "max"
    value: float
    if dtype == torch.bool:
        value = not lowest
    elif dtype.is_floating_point and dtype.itemsize > 1:
        value = float("-inf") if lowest else float("inf")
    else:
        info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        value = info.min if lowest else info.max
    return torch.full(tuple(shape), value, dtype=dtype, device=device)


class Layout:
    """How the pieces at `regions` form the shard `box`; computed once, used often.

    What the pieces leave open becomes the identity of the reduction `fill`.
    """

    __slots__ = ("_cuts", "_dim", "_full", "_whole", "box", "fill")

    def __init__(self, regions: Sequence[Box], box: Box, fill: str | None = None) -> None:
        self.box = box
        self._full = tuple(i for i, region in enumerate(regions) if volume(region))
        self._cuts = tuple(cut_out(regions[i], box) for i in self._full)
        self._whole = self._full[0] if self._cuts == ((),) else -1
        self._dim = -1
        covered = sum(volume(regions[i]) for i in self._full)
        if covered != volume(box):
            assert fill is not None, f"pieces cover {covered} of {box}"
            self.fill: str | None = fill
            return
        self.fill = None
        dims = {tuple(dim for dim, _, _ in cut) for cut in self._cuts}
        if len(self._full) > 1 and len(dims) == 1 and len(only := dims.pop()) == 1:
            # The pieces lie in a row: one concatenation instead of a copy of each.
            self._dim = only[0]
            order = sorted(range(len(self._full)), key=lambda i: self._cuts[i][0][1])
            self._full = tuple(self._full[i] for i in order)

    @property
    def whole(self) -> bool:
        """Whether a single piece is the whole shard, and so is the result."""
        return self._whole >= 0

    def build(
        self, pieces: Sequence[torch.Tensor], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """The shard assembled from the pieces, which are in the order of the regions."""
        if self._whole >= 0:
            return pieces[self._whole]
        if self._dim >= 0:
            return torch.cat([pieces[i] for i in self._full], self._dim)
        shape = self.box[1]
        if self.fill is None:
            out = torch.empty(shape, dtype=dtype, device=device)
        else:
            out = identity(shape, self.fill, dtype, device)
        for i, cut in zip(self._full, self._cuts, strict=True):
            take(out, cut).copy_(pieces[i])
        return out

    def gathered(
        self, pieces: Sequence[torch.Tensor], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """`build` from pieces that are not used elsewhere: no copy if they are in place already."""
        row = [pieces[i] for i in self._full] if self._dim == 0 else []
        if row and _are_adjacent(row):
            return row[0].as_strided(self.box[1], row[0].stride())
        return self.build(pieces, dtype, device)


def _are_adjacent(pieces: Sequence[torch.Tensor]) -> bool:
    """Whether the pieces are adjacent in one block of memory, as gathered ones may be."""
    storage, end = pieces[0].untyped_storage().data_ptr(), pieces[0].data_ptr()
    for piece in pieces:
        if (
            piece.data_ptr() != end
            or piece.untyped_storage().data_ptr() != storage
            or not piece.is_contiguous()
        ):
            return False
        end += piece.nbytes
    return True
