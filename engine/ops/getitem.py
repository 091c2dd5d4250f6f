"""`x[...]` and `x[...] = v`: reading an index as basic slices and index tensors."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_int
from typing import Any, SupportsIndex

import numpy as np
import torch

from ...errors import OnefoldIndexError, OnefoldRuntimeError, OnefoldTypeError
from ..names import named, names
from ..sbp import broadcast
from ..tensor import Tensor
from ..values import whole
from .dims import expand, unsqueeze
from .index import put_rows, take_rows
from .slicing import Entries, Entry, read_int, read_slice, set_slice, slice_by
from .view import reshape

_KINDS = (torch.bool, torch.uint8)


def like_index(values: torch.Tensor, x: Tensor) -> Tensor:
    """An index tensor with these values where `x` lives, known to every rank."""
    if x.meta.placement is None:
        return names.tensor(values, device=x.meta.device)  # type: ignore[no-any-return]
    placement = x.meta.placement
    layout = {"placement": placement, "sbp": (broadcast,) * placement.ndim}
    return names.tensor(values, **layout)  # type: ignore[no-any-return]


@named
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of the elements that are not zero, one per row; `as_tuple`: one tensor per dim.

    Their number depends on the values, so every process reads the whole tensor.
    """
    found = torch.nonzero(whole(input))
    if not as_tuple:
        return like_index(found, input)
    columns = found.unbind(1) if input.ndim else (torch.nonzero(whole(input).reshape(1))[:, 0],)
    return tuple(like_index(column, input) for column in columns)


@named
def argwhere(input: Tensor) -> Tensor:
    """The indices of the elements that are not zero, one per row."""
    return nonzero(input)  # type: ignore[no-any-return]


class _Reader:
    """An index of one tensor, read from left to right as torch does.

    Ints and slices become `entries`, one per dim of the tensor. What is left are `dims` of the
    sliced tensor with new ones of size 1, some of which are looked up in index tensors.
    """

    def __init__(self, x: Tensor, items: Sequence[Any]) -> None:
        self.x = x
        self.entries: list[Entry] = []
        self.new: list[int] = []  # places of new dims, in the sliced tensor with the earlier ones
        self.lookups: dict[int, Tensor] = {}  # place -> index tensor
        self.scalars: dict[int, Tensor] = {}  # place -> 0-d index tensor, which selects
        self.place = 0
        spare = x.ndim - sum(_width(item) for item in items)
        if spare < 0:
            raise OnefoldIndexError(
                f"too many indices for tensor of dimension {x.ndim} and shape {tuple(x.shape)}: "
                f"got {x.ndim - spare}"
            )
        if sum(item is Ellipsis for item in items) > 1:
            raise OnefoldIndexError("an index can only have a single ellipsis ('...')")
        for item in items:
            if item is Ellipsis:
                self.keep(spare)
                spare = 0
            else:
                self.read(item)
        self.keep(x.ndim - len(self.entries))

    @property
    def size(self) -> int:
        """The size of the dim that stands next."""
        return self.x.shape[len(self.entries)]

    def keep(self, count: int) -> None:
        self.entries += [None] * count
        self.place += count

    def read(self, item: Any) -> None:
        if item is None:
            self.insert()
        elif isinstance(item, (bool, np.bool_)):
            self.insert()
            rows = torch.zeros(int(item), dtype=torch.int64)
            self.lookups[self.place - 1] = like_index(rows, self.x)
        elif isinstance(item, slice):
            self.entries.append(read_slice(item, self.size))
            self.place += 1
        elif isinstance(item, Tensor):
            self.read_tensor(item)
        else:
            self.entries.append(read_int(as_int(item), self.size, len(self.entries)))

    def insert(self) -> None:
        self.new.append(self.place)
        self.place += 1

    def read_tensor(self, item: Tensor) -> None:
        if item.dtype in _KINDS:
            self.read_mask(item)
            return
        if not item.ndim:
            self.scalars[self.place] = item
        else:
            self.lookups[self.place] = item
        self.keep(1)

    def read_mask(self, mask: Tensor) -> None:
        if not mask.ndim:
            self.insert()
            rows = torch.zeros(int(bool(whole(mask))), dtype=torch.int64)
            self.lookups[self.place - 1] = like_index(rows, self.x)
            return
        start = len(self.entries)
        if tuple(mask.shape) != tuple(self.x.shape[start : start + mask.ndim]):
            raise OnefoldIndexError(
                f"The shape of the mask {list(mask.shape)} at index {start} does not match the "
                f"shape of the indexed tensor {list(self.x.shape)} at index {start}"
            )
        for column in nonzero(mask, as_tuple=True):
            self.lookups[self.place] = column
            self.keep(1)

    def shape(self) -> tuple[int, ...]:
        """The shape after slicing and inserting, before anything is looked up."""
        sliced = iter(
            len(range(*entry)) if isinstance(entry, tuple) else size
            for entry, size in zip(self.entries, self.x.shape, strict=True)
            if not isinstance(entry, int)
        )
        return tuple(1 if place in self.new else next(sliced) for place in range(self.place))


def _width(item: Any) -> int:
    """How many dims of the tensor an item of an index reads."""
    if item is None or item is Ellipsis or isinstance(item, (bool, np.bool_)):
        return 0
    if isinstance(item, Tensor) and item.dtype in _KINDS:
        return item.ndim
    return 1


def _items(x: Tensor, index: Any) -> list[Any]:
    items = list(index) if isinstance(index, tuple) else [index]
    return [_item(x, item) for item in items]


def _item(x: Tensor, item: Any) -> Any:
    if isinstance(item, (list, tuple, range, np.ndarray, torch.Tensor)):
        values = _array(item)
        if not isinstance(item, (np.ndarray, torch.Tensor)) and not values.numel():
            values = values.to(torch.int64)
        if values.ndim == 0 and values.dtype not in _KINDS:
            return int(values)
        return like_index(values, x)
    if item is None or item is Ellipsis or isinstance(item, (bool, slice, Tensor, np.bool_)):
        return item
    if not isinstance(item, SupportsIndex):
        raise OnefoldTypeError(
            "an index must be an int, a slice, None, ..., a bool, or a tensor or list of ints or "
            f"bools, but got {item!r} ({type(item).__name__})"
        )
    return item


def _array(item: Any) -> torch.Tensor:
    if isinstance(item, torch.Tensor):
        return item
    if isinstance(item, (list, tuple)) and any(isinstance(part, Tensor) for part in item):
        item = [whole(part).tolist() if isinstance(part, Tensor) else part for part in item]
    return torch.as_tensor(np.asarray(item) if isinstance(item, range) else item)


def _basic(x: Tensor, index: Any) -> Entries | None:
    """The entries of an index of ints and slices only, for the common case; else None."""
    shape = x.meta.shape
    if type(index) is int and shape and 0 <= index < shape[0]:
        return (index, *[None] * (len(shape) - 1))
    items = index if type(index) is tuple else (index,)
    if len(items) > len(shape):
        return None
    entries: list[Entry] = []
    for dim, item in enumerate(items):
        if type(item) is int:
            entries.append(read_int(item, shape[dim], dim))
        elif type(item) is slice:
            entries.append(read_slice(item, shape[dim]))
        else:
            return None
    return (*entries, *[None] * (len(shape) - len(items)))


@named
def getitem(self: Tensor, index: Any) -> Tensor:
    """`x[index]`: ints, slices with steps, None, ..., and bool or integer tensors or lists.

    A slice of a split dim becomes a partial sum of what the ranks hold; dims taken whole keep
    their split. A bool mask is read by every process, since the shape depends on it. Raises
    OnefoldIndexError when an index lies outside the tensor.
    """
    entries = _basic(self, index)
    if entries is not None:
        return slice_by(self, entries)
    if isinstance(index, Tensor) and index.dtype is torch.int64 and index.ndim and self.ndim:
        return take_rows(self, (index,))
    found = _Reader(self, _items(self, index))
    y = slice_by(self, tuple(found.entries))
    for place in found.new:
        y = unsqueeze(y, place)
    return _look_up(y, found)


def _look_up(y: Tensor, found: _Reader) -> Tensor:
    lookups = dict(found.lookups)
    # From behind, so that the places before stay; a 0-d index removes its dim at once, as an int.
    for place in sorted(found.scalars, reverse=True):
        y = take_rows(y, (*[None] * place, found.scalars[place]))
        lookups = {p - (p > place): index for p, index in lookups.items()}
    if not lookups:
        return y
    return take_rows(y, _by_place(lookups))


@named
def setitem(self: Tensor, index: Any, value: Any) -> Tensor:
    """The tensor that `self` becomes by `self[index] = value`: a new one, in `self`'s dtype.

    Raises OnefoldRuntimeError when the value does not broadcast to the shape of `self[index]`.
    """
    value = _value(self, value)
    entries = _basic(self, index)
    if entries is not None:
        shape = tuple(
            len(range(*entry)) if isinstance(entry, tuple) else size
            for entry, size in zip(entries, self.shape, strict=True)
            if not isinstance(entry, int)
        )
        return set_slice(self, _fit(value, shape), entries)
    masked = _set_masked(self, index, value)
    if masked is not None:
        return masked
    found = _Reader(self, _items(self, index))
    if not found.lookups and not found.scalars:
        value = _fit(value, found.shape())
        sliced = [size for place, size in enumerate(found.shape()) if place not in found.new]
        return set_slice(self, reshape(value, *sliced), tuple(found.entries))
    # The rows are put into the slice, and the slice into the tensor.
    part = slice_by(self, tuple(found.entries))
    sliced_shape = part.shape
    for place in found.new:
        part = unsqueeze(part, place)
    part = reshape(_put(part, found.lookups, found.scalars, value), sliced_shape)
    return set_slice(self, part, tuple(found.entries))


def _put(
    part: Tensor, lookups: dict[int, Tensor], scalars: dict[int, Tensor], value: Tensor
) -> Tensor:
    """`part` with `value` at index tensors by place, of which 0-d ones select their dim first."""
    if scalars:
        place = max(scalars)
        index = (*[None] * place, scalars[place])
        others = {p: scalar for p, scalar in scalars.items() if p != place}
        shifted = {p - (p > place): lookup for p, lookup in lookups.items()}
        return put_rows(part, index, _put(take_rows(part, index), shifted, others, value))
    if not lookups:
        return _fit(value, tuple(part.shape))
    return put_rows(part, _by_place(lookups), value)


def _by_place(lookups: dict[int, Tensor]) -> tuple[Tensor | None, ...]:
    return tuple(lookups.get(place) for place in range(max(lookups) + 1))


def _value(x: Tensor, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return names.cast(value, x.dtype) if value.dtype != x.dtype else value
    placement = x.meta.placement
    where: dict[str, Any] = (
        {"device": x.meta.device}
        if placement is None
        else {"placement": placement, "sbp": (broadcast,) * placement.ndim}
    )
    return names.tensor(value, dtype=x.dtype, **where)  # type: ignore[no-any-return]


def _fit(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A value broadcast to the shape of what it replaces; surplus dims in front have size 1."""
    if value.shape == shape:
        return value
    lead = value.ndim - len(shape)
    if lead > 0 and all(size == 1 for size in value.shape[:lead]):
        value = reshape(value, *value.shape[lead:])
    if value.ndim > len(shape) or any(
        mine not in (1, size)
        for mine, size in zip(reversed(value.shape), reversed(shape), strict=False)
    ):
        raise OnefoldRuntimeError(
            f"shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast to "
            f"indexing result of shape {list(shape)}"
        )
    return expand(value, *shape)


def _set_masked(x: Tensor, index: Any, value: Tensor) -> Tensor | None:
    """x[mask] = one value, without asking where the mask is set; None for other assignments."""
    if isinstance(index, tuple) and len(index) == 1:
        index = index[0]
    if not isinstance(index, Tensor) or index.dtype is not torch.bool or value.numel() != 1:
        return None
    if not index.ndim or tuple(index.shape) != tuple(x.shape[: index.ndim]):
        return None
    mask = reshape(index, *index.shape, *[1] * (x.ndim - index.ndim))
    return names.where(mask, reshape(value, ()), x)  # type: ignore[no-any-return]


@named
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where `mask` is true, in one dim; the two broadcast against each other."""
    if mask.dtype is not torch.bool:
        raise OnefoldRuntimeError(
            f"masked_select: expected BoolTensor for mask, but got {mask.dtype}"
        )
    x, mask = names.broadcast_tensors(input, mask)
    if not x.ndim:
        x, mask = reshape(x, 1), reshape(mask, 1)
    return take_rows(x, nonzero(mask, as_tuple=True))


@named
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`input` with the elements where `mask` is true taken from `source`, in order."""
    if mask.dtype is not torch.bool or source.dtype != input.dtype:
        raise OnefoldRuntimeError(
            "masked_scatter expects a bool mask and a source of the input's dtype, but got "
            f"{mask.dtype}, {input.dtype} and {source.dtype}"
        )
    x, mask = names.broadcast_tensors(input, mask)
    if not x.ndim:
        return reshape(masked_scatter(reshape(x, 1), reshape(mask, 1), source), ())
    where = nonzero(mask, as_tuple=True)
    count = where[0].shape[0]
    if source.numel() < count:
        raise OnefoldRuntimeError(
            f"masked_scatter: Number of elements of source < number of ones in mask: "
            f"{source.numel()} < {count}"
        )
    values = slice_by(reshape(source, -1), (read_slice(slice(0, count), source.numel()),))
    return put_rows(x, where, values)


@named
def index_put(
    input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """`input` with input[indices] = values, or += for `accumulate`; bool masks are read first."""
    read: list[Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in _KINDS:
            read.extend(nonzero(index, as_tuple=True))
        else:
            read.append(index)
    return put_rows(input, tuple(read), values, accumulate)


@named
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements at `index` of the tensor seen as one dim."""
    return take_rows(reshape(input, input.numel()), (index,))
