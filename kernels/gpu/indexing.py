"""Rows by integer tensors: taken, put and added. Indexed dims side by side count as one."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from .. import indexing as reference
from .places import Along, checked, gathered, places_of, write
from .runs import add_runs

TORCH = {
    "indexed dims that are not side by side": "torch moves them to the front by a copy",
    "complex tensors": "Triton has no complex numbers",
    "masks and nonzero": "their results' shapes depend on values, so the host must wait anyway",
}

# What is not compiled here is among the cases of `gathering`.
CASES: list[object] = []

Indices = reference.Indices
Boxes = reference.Boxes


def _adjacent(indices: Indices) -> bool:
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    return dims[-1] - dims[0] + 1 == len(dims)


class _Read:
    """An index that counts in the dims [first, last), seen as one dim of `along.size` elements."""

    def __init__(self, indices: Indices, shape: Sequence[int], boxes: Boxes) -> None:
        dims = [dim for dim, index in enumerate(indices) if index is not None]
        self.first, self.last = dims[0], dims[-1] + 1
        there = [index for index in indices if index is not None]
        self.block = torch.broadcast_shapes(*[index.shape for index in there])
        self.lead = prod(shape[: self.first])
        self.rest = prod(shape[self.last :])
        size = prod(shape[self.first : self.last])
        if len(there) == 1:
            offset, whole = boxes[self.first]
            self.along = Along(size, offset, whole, wrap=True, padding=-1)
            self.index = checked(there[0], self.along, self.first)
        else:
            self.along = Along(size, 0, size)
            self.index = _joined(indices, shape, boxes).broadcast_to(self.block).contiguous()

    @property
    def entries(self) -> int:
        return prod(self.block)

    def places(self) -> Tensor:
        """The place of each entry among the indexed dims, `along.size` where it is not held."""
        return places_of(self.index, max(self.entries, 1), 1, self.along, self.along.size)


def _joined(indices: Indices, shape: Sequence[int], boxes: Boxes) -> Tensor:
    """One index instead of several; behind the end where one of them is not held."""
    total: Tensor | None = None
    held: Tensor | None = None
    size = 1
    for dim, index in enumerate(indices):
        if index is None:
            continue
        offset, whole = boxes[dim]
        index = checked(index, Along(shape[dim], offset, whole, wrap=True), dim)
        mine = torch.where(index < 0, index + whole, index) - offset
        here = (mine >= 0) & (mine < shape[dim])
        total = mine if total is None else total * shape[dim] + mine
        held = here if held is None else held & here
        size *= shape[dim]
    assert total is not None and held is not None
    return torch.where(held, total, size)


def _whole(x: Tensor) -> Boxes:
    return [(0, size) for size in x.shape]


def take(x: Tensor, indices: Indices) -> Tensor:
    if x.is_complex() or not _adjacent(indices) or not x.numel():
        return reference.take(x, indices)
    return _taken(x, _Read(indices, x.shape, _whole(x)))


def _taken(x: Tensor, read: _Read) -> Tensor:
    if not x.numel():
        return x.new_zeros((*x.shape[: read.first], *read.block, *x.shape[read.last :]))
    y = gathered(x, read.index, read.lead, read.entries, read.rest, read.along, each=False)
    return y.view(*x.shape[: read.first], *read.block, *x.shape[read.last :])


def take_held(x: Tensor, indices: Indices, boxes: Boxes, shape: Sequence[int]) -> Tensor:
    if x.is_complex() or not _adjacent(indices):
        return reference.take_held(x, indices, boxes, shape)
    read = _Read(indices, x.shape, boxes)
    if len([index for index in indices if index is not None]) > 1:
        # What is not held is behind the end, where it must not count as a mistake.
        read.along = read.along._replace(whole=read.along.size + 1)
    return _taken(x, read)


def add_rows(dy: Tensor, indices: Indices, boxes: Boxes, shape: Sequence[int]) -> Tensor:
    if dy.is_complex() or dy.dtype is torch.bool or not _adjacent(indices):
        return reference.add_rows(dy, indices, boxes, shape)
    read = _Read(indices, shape, boxes)
    rows = dy.reshape(read.lead, read.entries, read.rest).transpose(0, 1)
    width = read.lead * read.rest
    found = add_runs(read.places(), rows.reshape(read.entries, width), read.along.size)
    y = found.view(read.along.size, read.lead, read.rest).transpose(0, 1)
    return y.reshape(tuple(shape))


def put_rows(x: Tensor, values: Tensor | None, indices: Indices, boxes: Boxes) -> Tensor:
    if x.is_complex() or not _adjacent(indices):
        return reference.put_rows(x, values, indices, boxes)
    read = _Read(indices, x.shape, boxes)
    y = x.clone(memory_format=torch.contiguous_format)
    if y.numel() and read.entries:
        places = read.places()
        write(y, places, values, read.entries, read.rest, read.along.size, each=False)
    return y
