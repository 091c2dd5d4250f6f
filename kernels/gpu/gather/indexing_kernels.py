"""Indexing by integer tensors: take, put and add rows. Adjacent indexed dims count as one.

Indexed dims that are not adjacent are moved to the front, as in torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
import triton.language as tl
from torch import Tensor

from ... import indexing_ref as reference
from ...common_shapes import broadcast_shapes
from ..launch.aot_cases import Case
from ..launch.jit_kernel import Kernel
from ..pointwise.copy_kernels import contiguous, fill, reshape
from .scatter_gather import BLOCK, Along, checked, find, gathered, launch_flat, places_of, write
from .segment_reduce import add_runs

# Left to torch: complex numbers; sums of bools; masks and nonzero, whose result's shape depends on
# values, so that the host must wait anyway. Whether indices are in range is asked on the CPU only.

Indices = reference.Indices
Boxes = reference.Boxes


@Kernel
def _join(
    index, y, count: tl.int64, size, offset, whole, nowhere: tl.int64,
    FIRST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Extend flat indices by one dim: `nowhere` if the shard does not hold it, -1 if invalid."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    found, held, there = find(tl.load(index + at, mask=inside), size, offset, whole, -1, True)
    if not FIRST:
        before = tl.load(y + at, mask=inside)
        held &= before < nowhere
        there &= before >= 0
        found += before * size
    tl.store(y + at, tl.where(there, tl.where(held, found, nowhere), -1), mask=inside)


def _joined(indices: Indices, shape: Sequence[int], boxes: Boxes, nowhere: int) -> Tensor:
    """One flat index for adjacent indexed dims."""
    there = [index for index in indices if index is not None]
    block = broadcast_shapes(*[index.shape for index in there])
    y = torch.empty(block, dtype=torch.int64, device=there[0].device)
    first = True
    for dim, index in enumerate(indices):
        if index is None:
            continue
        offset, whole = boxes[dim]
        index = checked(index, Along(shape[dim], offset, whole, wrap=True), dim)
        index = index.expand(block).contiguous()
        args = (index, y, y.numel(), shape[dim], offset, whole, nowhere)
        launch_flat(_join, y.numel(), args, first)
        first = False
    return y


class _Read:
    """A flat index into the dims [first, last), seen as one dim of `along.size` elements.

    `order` is the permutation that makes these dims adjacent, None if they are.
    """

    def __init__(self, indices: Indices, shape: Sequence[int], boxes: Boxes) -> None:
        dims = [dim for dim, index in enumerate(indices) if index is not None]
        self.order: list[int] | None = None
        if dims[-1] - dims[0] + 1 != len(dims):
            self.order = dims + [dim for dim in range(len(shape)) if dim not in dims]
            indices = [indices[dim] for dim in dims]
            shape, boxes = [shape[dim] for dim in self.order], [boxes[dim] for dim in self.order]
            dims = list(range(len(dims)))
        self.shape = tuple(shape)
        self.first, self.last = dims[0], dims[-1] + 1
        self.lead = prod(shape[: self.first])
        self.rest = prod(shape[self.last :])
        size = prod(shape[self.first : self.last])
        index = indices[self.first]
        if len(dims) == 1 and index is not None:
            self.along = Along(size, *boxes[self.first], wrap=True)
            self.index = checked(index, self.along, self.first)
        else:  # what is not held is one more, behind the end
            self.along = Along(size, 0, size + 1)
            self.index = _joined(indices, shape, boxes, size)

    @property
    def entries(self) -> int:
        return self.index.numel()

    def places(self) -> Tensor:
        """The position of each entry in the indexed dims, `along.size` if it is not held."""
        return places_of(self.index, max(self.entries, 1), 1, self.along, self.along.size)

    def of(self, x: Tensor) -> Tensor:
        """The tensor with its indexed dims adjacent."""
        return x if self.order is None else x.permute(self.order)

    def back(self, y: Tensor) -> Tensor:
        """The inverse of `of` for a tensor of `shape`."""
        if self.order is None:
            return y
        return y.permute([self.order.index(dim) for dim in range(y.ndim)])


def take(x: Tensor, indices: Indices) -> Tensor:
    if x.is_complex():
        return reference.take(x, indices)
    return _taken(x, indices, [(0, size) for size in x.shape])


def take_held(x: Tensor, indices: Indices, boxes: Boxes, shape: Sequence[int]) -> Tensor:
    if x.is_complex():
        return reference.take_held(x, indices, boxes, shape)
    return _taken(x, indices, boxes)


def _taken(x: Tensor, indices: Indices, boxes: Boxes) -> Tensor:
    read = _Read(indices, x.shape, boxes)
    shape = (*read.shape[: read.first], *read.index.shape, *read.shape[read.last :])
    if not x.numel():
        return fill(torch.empty(shape, dtype=x.dtype, device=x.device), 0)
    y = gathered(read.of(x), read.index, read.lead, read.entries, read.rest, read.along, each=False)
    return y.view(shape)


def add_rows(dy: Tensor, indices: Indices, boxes: Boxes, shape: Sequence[int]) -> Tensor:
    if dy.is_complex() or dy.dtype is torch.bool:
        return reference.add_rows(dy, indices, boxes, shape)
    read = _Read(indices, shape, boxes)
    rows = reshape(dy, (read.lead, read.entries, read.rest)).transpose(0, 1)
    source = reshape(rows, (read.entries, read.lead * read.rest))
    found = add_runs(read.places(), source, read.along.size)
    y = found.view(read.along.size, read.lead, read.rest).transpose(0, 1)
    return read.back(reshape(y, read.shape))


def put_rows(x: Tensor, values: Tensor | None, indices: Indices, boxes: Boxes) -> Tensor:
    if x.is_complex():
        return reference.put_rows(x, values, indices, boxes)
    read = _Read(indices, x.shape, boxes)
    y = contiguous(read.of(x))
    if y.numel() and read.entries:
        rows = 0 if values is None else values
        write(y, read.places(), rows, read.entries, read.rest, read.along.size, each=False)
    return read.back(y)


CASES = [Case(_join, ("*i64", "*i64", "i64?", *("i32",) * 3, "i64?"), (False, BLOCK))]
