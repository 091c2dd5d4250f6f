"""Indexing of shards by integer tensors: take, put and add rows that other ranks may hold.

`indices` has an entry per dim of the indexed tensor, None for a whole dim. `boxes` gives for each
dim where the shard lies: (offset, whole size). The dims of the index tensors are at
`place(indices)` of the result: at the first indexed dim, or in front if the indexed dims are not
adjacent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from ..errors import OnefoldIndexError, OnefoldRuntimeError
from .common_shapes import broadcast_shapes
from .host_memory import on_host

_ALL = slice(None)

Indices: TypeAlias = Sequence[Tensor | None]
Boxes: TypeAlias = Sequence[tuple[int, int]]


class Shaped(Protocol):
    """A tensor, or the description of one."""

    @property
    def shape(self) -> torch.Size: ...


class OutOfRangeError(OnefoldIndexError, OnefoldRuntimeError):
    """An index tensor names an element that is not there; torch raises either of the two."""


def place(indexed: Sequence[bool]) -> int:
    """Where the dims of the index tensors stand in the result."""
    dims = [dim for dim, there in enumerate(indexed) if there]
    return dims[0] if dims[-1] - dims[0] + 1 == len(dims) else 0


def check_range(index: Tensor, size: int, dim: int, low: int = 0) -> int:
    """Raise OutOfRangeError, naming the value, when an index is not in [low, size).

    Returns the least index, 0 where there is none to look at.
    """
    if not index.numel() or index.is_meta:
        return 0
    least, most = map(int, torch.aminmax(index))
    wrong = least if least < low else most
    if least < low or most >= size:
        raise OutOfRangeError(
            f"index {wrong} is out of bounds for dimension {dim} with size {size}"
        )
    return least


def from_start(index: Tensor, size: int, dim: int) -> Tensor:
    """An index of a dim of this size, counted from its start. Raises OutOfRangeError."""
    least = check_range(index, size, dim, -size)
    return index if least >= 0 else torch.where(index < 0, index + size, index)


def only_index(indices: Indices) -> tuple[int, Tensor] | None:
    """The dim and index where one dim is indexed by a tensor on the CPU that has dims, or None.

    torch checks such indices as it reads them, which saves a pass over them; a negative one, which
    these functions of torch do not take, is an error there and left to the general way.
    """
    found = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(found) != 1 or not found[0][1].ndim or not on_host(found[0][1]):
        return None
    return found[0]


def take(x: Tensor, indices: Indices) -> Tensor:
    """x[indices] of a whole tensor, or one that is whole in the indexed dims, in new memory."""
    only = only_index(indices)
    if only is not None:
        dim, index = only
        try:
            y = torch.index_select(x, dim, index if index.ndim == 1 else index.reshape(-1))
        except (IndexError, RuntimeError):
            pass
        else:
            return y if index.ndim == 1 else y.unflatten(dim, index.shape)
    try:
        y = x[tuple([slice(None) if index is None else index for index in indices])]
    except IndexError as error:
        raise OutOfRangeError(str(error)) from None
    if any(index.ndim for index in indices if index is not None):
        return y
    return y.clone(memory_format=torch.contiguous_format)  # for numbers torch gives a view


def taking(ndims: Sequence[int | None]) -> Callable[..., Tensor]:
    """`take` for indices on the CPU that have so many dims, None for a whole dim.

    Called with the tensor and each index.
    """
    given = [(dim, ndim) for dim, ndim in enumerate(ndims) if ndim is not None]
    if len(given) == 1 and given[0][1] == 1:
        dim, count = given[0][0], len(ndims)

        def along(x: Tensor, *indices: Tensor) -> Tensor:
            try:
                return torch.index_select(x, dim, indices[dim])
            except (IndexError, RuntimeError):
                return take(x, indices)

        def rows(x: Tensor, index: Tensor) -> Tensor:
            try:
                return torch.index_select(x, 0, index)
            except (IndexError, RuntimeError):
                return take(x, (index,))

        return rows if count == 1 else along
    if len(given) < 2 or not any(ndim for _, ndim in given):
        return lambda x, *indices: take(x, indices)
    whole = len(given) < len(ndims)

    def several(x: Tensor, *indices: Tensor | None) -> Tensor:
        where: Any = tuple([_ALL if i is None else i for i in indices]) if whole else indices
        try:
            return x[where]
        except IndexError as error:
            raise OutOfRangeError(str(error)) from None

    return several


def inside(
    indices: Indices, shape: Sequence[int], boxes: Boxes
) -> tuple[list[Tensor | None], Tensor]:
    """The indices as the shard counts them, and which of them it holds; others become 0."""
    found: list[Tensor | None] = []
    valid: Tensor | None = None
    for dim, (index, size, (offset, whole)) in enumerate(zip(indices, shape, boxes, strict=False)):
        if index is None:
            found.append(None)
            continue
        mine = from_start(index, whole, dim) - offset
        held = (mine >= 0) & (mine < size)
        found.append(torch.where(held, mine, 0))
        valid = held if valid is None else valid & held
    assert valid is not None
    return found, valid


def take_held(x: Tensor, indices: Indices, boxes: Boxes, shape: Sequence[int]) -> Tensor:
    """The rows that the shard holds, zeros for the others; `shape` is the result's."""
    mine, valid = inside(indices, x.shape, boxes)
    if any(index is not None and size == 0 for index, size in zip(indices, x.shape, strict=False)):
        return x.new_zeros(shape)
    y = take(x, mine)
    first = place([index is not None for index in indices])
    valid = valid.reshape((*valid.shape, *[1] * (y.ndim - first - valid.ndim)))
    return y.masked_fill(~valid, 0)


def add_rows(dy: Tensor, indices: Indices, boxes: Boxes, shape: Sequence[int]) -> Tensor:
    """A shard of zeros to which the rows of `dy` are added at the indices that it holds.

    One index_add over linear indices: in a fixed order, unlike torch's index_put on several
    threads.
    """
    total = _add_along(dy, indices, boxes, shape)
    if total is not None:
        return total
    linear, held = _linear(indices, boxes, shape)
    indices = [*indices, *[None] * (len(shape) - len(indices))]
    front = [dim for dim, index in enumerate(indices) if index is not None]
    rest = [dim for dim, index in enumerate(indices) if index is None]
    first = place([index is not None for index in indices])
    rows = prod(shape[dim] for dim in front)
    width = [shape[dim] for dim in rest]
    block = linear.ndim
    moved = dy.movedim(list(range(first, first + block)), list(range(block))) if first else dy
    flat, linear = moved.reshape(linear.numel(), *width), linear.reshape(-1)
    if held is not None and not held.is_meta and not bool(held.all()):
        linear, flat = linear[held.reshape(-1)], flat[held.reshape(-1)]
    total = dy.new_zeros((rows, *width)).index_add_(0, linear, flat)
    order = [0] * len(shape)
    for new, dim in enumerate((*front, *rest)):
        order[dim] = new
    return total.reshape([*[shape[dim] for dim in front], *width]).permute(order)


# Elements of a small tensor are numbered and looked up, in place of arithmetic on each index.
_MOST_NUMBERED = 1 << 14


def adding(
    ndims: Sequence[int | None], boxes: Boxes, shape: Sequence[int]
) -> Callable[..., Tensor]:
    """`add_rows` to a shard of this shape for indices on the CPU that have so many dims.

    Called with the rows and each index.
    """
    front = [dim for dim, ndim in enumerate(ndims) if ndim is not None]
    block = max(ndim for ndim in ndims if ndim is not None)
    sizes = tuple([shape[dim] for dim in front])
    rows, small = prod(sizes), all(shape[dim] == boxes[dim][1] for dim in front)
    if front != list(range(len(front))) or len(front) == 1 or not small or rows > _MOST_NUMBERED:
        return lambda dy, *indices: add_rows(dy, indices, boxes, shape)
    flat = (rows, *shape[len(front) :])

    def add(dy: Tensor, *indices: Tensor) -> Tensor:
        try:
            linear = torch.arange(rows, device=dy.device).view(sizes)[indices]
        except IndexError as error:
            raise OutOfRangeError(str(error)) from None
        if block != 1:
            linear, dy = linear.reshape(-1), dy.flatten(0, block - 1) if block else dy[None]
        return dy.new_zeros(flat).index_add_(0, linear, dy).view(shape)

    return add


def _linear(indices: Indices, boxes: Boxes, shape: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    """The places in the indexed dims of a shard as one number, and which it holds (None: all)."""
    held: Tensor | None = None
    if _holds_all(indices, shape, boxes):
        found = [
            None if index is None else from_start(index, shape[dim], dim)
            for dim, index in enumerate(indices)
        ]
    else:
        found, held = inside(indices, shape, boxes)
    linear: Tensor | None = None
    for dim, index in enumerate(found):
        if index is not None:
            linear = index.long() if linear is None else linear * shape[dim] + index
    assert linear is not None
    return linear, held


def _add_along(dy: Tensor, indices: Indices, boxes: Boxes, shape: Sequence[int]) -> Tensor | None:
    """`add_rows` along one dim that the shard holds whole; None where torch takes no such index."""
    only = only_index(indices)
    if only is None or shape[only[0]] != boxes[only[0]][1]:
        return None
    dim, index = only
    rows = dy if index.ndim == 1 else dy.flatten(dim, dim + index.ndim - 1)
    rows = rows.movedim(dim, 0) if dim else rows
    total = dy.new_zeros((shape[dim], *shape[:dim], *shape[dim + 1 :]) if dim else shape)
    try:
        total = total.index_add_(0, index if index.ndim == 1 else index.reshape(-1), rows)
    except (IndexError, RuntimeError):
        return None
    return total.movedim(0, dim) if dim else total


def put_rows(x: Tensor, values: Tensor | None, indices: Indices, boxes: Boxes) -> Tensor:
    """A copy of the shard with the rows of `values` (None: zeros) at the indices that it holds."""
    y = x.clone()
    if y.numel() and _holds_all(indices, x.shape, boxes):
        return _assign(y, indices, y.new_zeros(()) if values is None else values)
    mine, valid = inside(indices, x.shape, boxes)
    if values is None:
        values = x.new_zeros(()).expand(take_shape(x.shape, indices))
    first = place([index is not None for index in indices])
    held = valid.reshape(-1)
    block = values.movedim(list(range(first, first + valid.ndim)), list(range(valid.ndim))).reshape(
        held.numel(), *[n for i, n in enumerate(x.shape) if not _there(indices, i)]
    )
    where = [
        None if index is None else index.broadcast_to(valid.shape).reshape(-1)[held]
        for index in mine
    ]
    rows = block[held]
    if first:  # put_rows writes with the indexed dim at its own place
        rows = rows.movedim(0, first)
    y[tuple([slice(None) if index is None else index for index in where])] = rows
    return y


def _holds_all(indices: Indices, shape: Sequence[int], boxes: Boxes) -> bool:
    """Whether a shard of this shape is whole in the indexed dims, and no index selects its dim."""
    for index, size, (_, whole) in zip(indices, shape, boxes, strict=False):
        if index is not None and not (index.ndim and size == whole):
            return False
    return True


def _assign(y: Tensor, indices: Indices, values: Tensor) -> Tensor:
    """`y` itself after y[indices] = values."""
    try:
        y[tuple([slice(None) if index is None else index for index in indices])] = values
    except IndexError as error:
        raise OutOfRangeError(str(error)) from None
    return y


def _there(indices: Sequence[object], dim: int) -> bool:
    return dim < len(indices) and indices[dim] is not None


def take_shape(shape: Sequence[int], indices: Sequence[Shaped | None]) -> tuple[int, ...]:
    """The shape of x[indices]."""
    block = broadcast_shapes(*[index.shape for index in indices if index is not None])
    rest = [size for dim, size in enumerate(shape) if not _there(indices, dim)]
    first = place([index is not None for index in indices])
    return (*rest[:first], *block, *rest[first:])
