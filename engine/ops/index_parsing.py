"""Parses an index from left to right, as torch does: slices, new dims and index tensors."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_int
from types import EllipsisType
from typing import Literal, SupportsIndex, TypeAlias, overload

import numpy as np
import torch

from ...errors import OnefoldIndexError, OnefoldRuntimeError, OnefoldTypeError, user_line
from .. import interpreter
from ..convert import box
from ..meta import Meta
from ..names import register_function
from ..out_tensors import give_to
from ..sbp import broadcast
from ..tensor import Tensor, from_shards
from ..values import whole
from .cat_split import unbind
from .creation import is_plain, tensor
from .like import replicated_like
from .slicing import Entries, Entry, read_int, read_slice, sliced_shape
from .torch_rows import FUNCTIONS
from .view import reshape

MASKS = (torch.bool, torch.uint8)

# What an index consists of, but for ..., once lists and arrays are tensors.
Item: TypeAlias = SupportsIndex | slice | Tensor | np.bool_ | None


def like_index(values: torch.Tensor, x: Tensor, *, copy: bool = True) -> Tensor:
    """An index tensor with these values where `x` lives, known to every rank.

    Without `copy` they may stay in the memory of `values`, which nothing else writes then.
    """
    here = x.meta
    if is_plain(here):
        mine = values.to(here.device, copy=copy)
        return from_shards((mine,), Meta.of(mine.shape, mine.dtype, device=here.device))
    return replicated_tensor(values, x, values.dtype)


# The message for a graph that asks for distinct values.
ONLY_OUTSIDE = "How many values are distinct is known only then: ask for them outside build()"


def like_indices(
    values: torch.Tensor | Sequence[torch.Tensor], x: Tensor
) -> Tensor | tuple[Tensor, ...]:
    """`like_index` of one tensor or of several."""
    if isinstance(values, torch.Tensor):
        return like_index(values, x)
    return tuple(like_index(each, x) for each in values)


def replicated_tensor(data: object, x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x.new_tensor(data, dtype=dtype)`, faster: every rank of x has all of it."""
    return tensor(data, dtype=dtype, **replicated_like(x))


@overload
def nonzero(
    input: Tensor,
    *,
    as_tuple: Literal[False] = False,
    size: int | None = None,
    fill_value: int = -1,
    out: Tensor | None = None,
) -> Tensor: ...
@overload
def nonzero(
    input: Tensor, *, as_tuple: Literal[True], size: int | None = None, fill_value: int = -1
) -> tuple[Tensor, ...]: ...
@register_function
def nonzero(
    input: Tensor,
    *,
    as_tuple: bool = False,
    size: int | None = None,
    fill_value: int = -1,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The indices of the elements that are not zero, one per row; `as_tuple`: one tensor per dim.

    Their number depends on the values, so every process reads the whole tensor, and a graph cannot
    capture it. With `size`, as in JAX, there are that many, which a graph can capture: the first
    ones, then `fill_value` where there are fewer.

    >>> import onefold as flow
    >>> flow.nonzero(flow.tensor([0, 3, 0, 5]), size=3).tolist()
    [[1], [3], [-1]]
    """
    if out is not None:
        if as_tuple:
            raise OnefoldTypeError("nonzero: out= is one tensor, so as_tuple=True does not fit it")
        return give_to(out, nonzero(input, size=size, fill_value=fill_value))
    if size is None:
        if interpreter.capturing():
            raise _unknown_count()
        values = whole(input)
        if not as_tuple:
            return like_index(torch.nonzero(values), input, copy=False)
        found = torch.nonzero(values if input.ndim else values.reshape(1))
        return _as_columns(found.t().contiguous().unbind(0), input)
    if as_tuple and not input.ndim:
        input = reshape(input, 1)
    if input.is_global:
        input = box(input, input.meta.like(nd_sbp=(broadcast,) * input.placement.ndim))
    indices: Tensor = FUNCTIONS["nonzero_static"](input, size=size, fill_value=fill_value)
    return unbind(indices, 1) if as_tuple else indices


def true_places(mask: Tensor) -> Tensor:
    """Where the flattened mask is true: `nonzero` of it, as a vector."""
    if interpreter.capturing():
        raise _unknown_count()
    return like_index(torch.nonzero(whole(mask).reshape(-1)).view(-1), mask, copy=False)


def true_columns(mask: Tensor) -> tuple[Tensor, ...]:
    """Where the mask is true: a vector for each dim."""
    if interpreter.capturing():
        raise _unknown_count()
    return _as_columns(torch.nonzero(whole(mask)).unbind(1), mask)


def _as_columns(found: Sequence[torch.Tensor], x: Tensor) -> tuple[Tensor, ...]:
    """The columns of what `nonzero` found, as index tensors for `x`."""
    if not is_plain(x.meta):
        return tuple([like_index(column, x, copy=False) for column in found])
    meta = Meta.of((len(found[0]),), torch.int64, device=x.meta.device)
    return tuple([from_shards((column,), meta) for column in found])


def _unknown_count() -> OnefoldRuntimeError:
    return OnefoldRuntimeError(
        "the value of a tensor was asked for while a graph is captured: how many elements a mask "
        "has, or nonzero finds, is only known when the graph runs, but its shapes are fixed. Give "
        "a bound, as in where(mask, size=n) or nonzero(x, size=n), keep all elements with "
        f"where(mask, x, 0), or select them outside build(). Asked for at {user_line()}"
    )


@register_function
def argwhere(input: Tensor) -> Tensor:
    """The indices of the elements that are not zero, one per row."""
    return nonzero(input)


class Reader:
    """An index of one tensor, read from left to right as torch does.

    Ints and slices become `entries`, one per dim of the tensor. What is left are `dims` of the
    sliced tensor with new ones of size 1, some of which are looked up in index tensors.
    """

    def __init__(self, x: Tensor, items: Sequence[Item | EllipsisType]) -> None:
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

    def keep(self, count: int) -> None:
        self.entries += [None] * count
        self.place += count

    def read(self, item: Item) -> None:
        dim = len(self.entries)
        if item is None:
            self.insert()
        elif isinstance(item, (bool, np.bool_)):
            self.read_bool(bool(item))
        elif isinstance(item, slice):
            self.entries.append(read_slice(item, self.x.shape[dim]))
            self.place += 1
        elif isinstance(item, Tensor):
            self.read_tensor(item)
        else:
            self.entries.append(read_int(as_int(item), self.x.shape[dim], dim))

    def insert(self) -> None:
        self.new.append(self.place)
        self.place += 1

    def read_bool(self, there: bool) -> None:
        rows = torch.zeros(int(there), dtype=torch.int64)
        self.lookups[self.place] = like_index(rows, self.x)
        self.insert()

    def read_tensor(self, item: Tensor) -> None:
        if item.dtype in MASKS:
            self.read_mask(item)
            return
        (self.lookups if item.ndim else self.scalars)[self.place] = item
        self.keep(1)

    def read_mask(self, mask: Tensor) -> None:
        if not mask.ndim:
            self.read_bool(bool(whole(mask)))
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
        sliced = iter(sliced_shape(self.entries, self.x.shape))
        return tuple(1 if place in self.new else next(sliced) for place in range(self.place))


def lookups_of(x: Tensor, index: object) -> tuple[Entries, tuple[Tensor | None, ...]] | None:
    """What an index slices, and the index tensors by dim of the slice.

    That is for an index of slices, ints, index tensors, lists of ints and 1-d masks, the common
    case; None for other indices, and for those whose error is raised elsewhere.
    """
    items = index if type(index) is tuple else (index,)
    shape = x.meta.shape
    if len(items) > len(shape):
        return None
    entries: list[Entry] = [None] * len(shape)
    found: list[Tensor | None] = []
    for dim, (item, size) in enumerate(zip(items, shape, strict=False)):
        if isinstance(item, Tensor):
            meta = item.meta
            if meta.dtype is torch.bool and tuple(meta.shape) == (size,):
                item = true_places(item)
            elif meta.dtype is not torch.int64 or not meta.shape:
                return None
            found.append(item)
        elif type(item) is slice:
            entries[dim] = read_slice(item, size)
            found.append(None)
        elif type(item) is int:
            entries[dim] = read_int(item, size, dim)
        elif type(item) is list and item and all(type(row) is int for row in item):
            rows = [row + size if -size <= row < 0 else row for row in item]
            found.append(like_index(torch.tensor(rows), x, copy=False))
        else:
            return None
    while found and found[-1] is None:
        found.pop()
    return (tuple(entries), tuple(found)) if found else None


def _width(item: Item | EllipsisType) -> int:
    """The number of dims that an item of an index consumes."""
    if item is None or item is Ellipsis or isinstance(item, (bool, np.bool_)):
        return 0
    if isinstance(item, Tensor) and item.dtype in MASKS:
        return item.ndim
    return 1


def read_items(x: Tensor, index: object) -> list[Item | EllipsisType]:
    """The items of an index, with lists and arrays as tensors."""
    items = list(index) if isinstance(index, tuple) else [index]
    return [_item(x, item) for item in items]


def _item(x: Tensor, item: object) -> Item | EllipsisType:
    if isinstance(item, (list, tuple, range, np.ndarray, torch.Tensor)):
        values = _array(item)
        if not isinstance(item, (np.ndarray, torch.Tensor)) and not values.numel():
            values = values.to(torch.int64)
        if values.ndim == 0 and values.dtype not in MASKS:
            return int(values)
        return like_index(values, x)
    if item is None or item is Ellipsis or isinstance(item, (int, slice, Tensor, np.bool_)):
        return item
    if not isinstance(item, SupportsIndex):
        raise OnefoldTypeError(
            "an index must be an int, a slice, None, ..., a bool, or a tensor or list of ints or "
            f"bools, but got {item!r} ({type(item).__name__})"
        )
    return item


def _array(item: object) -> torch.Tensor:
    if isinstance(item, torch.Tensor):
        return item
    if isinstance(item, (list, tuple)) and any(isinstance(part, Tensor) for part in item):
        item = [whole(part).tolist() if isinstance(part, Tensor) else part for part in item]
    return torch.as_tensor(np.asarray(item) if isinstance(item, range) else item)


def basic_entries(x: Tensor, index: object) -> tuple[Entries, list[int]] | None:
    """The entries of an index of ints, slices, None and ..., and the places of the Nones.

    That is the common case; None for other indices, and for those whose error is raised elsewhere.
    """
    shape = x.meta.shape
    if type(index) is int and shape and 0 <= index < shape[0]:
        return (index, *[None] * (len(shape) - 1)), []
    entries: list[Entry] = []
    new: list[int] = []
    place = 0  # in the sliced tensor with the new dims
    spare = 0  # dims that ... stands for, once it was read
    items = index if type(index) is tuple else (index,)
    for item in items:
        dim = len(entries)
        if type(item) is int and dim < len(shape):
            entries.append(read_int(item, shape[dim], dim))
        elif type(item) is slice and dim < len(shape):
            entries.append(read_slice(item, shape[dim]))
            place += 1
        elif item is None:
            new.append(place)
            place += 1
        elif item is Ellipsis and not spare:
            spare = len(shape) - sum([type(other) in (int, slice) for other in items])
            if spare < 1:  # it stands for nothing, or the index is too long
                return None
            entries += [None] * spare
            place += spare
        else:
            return None
    return (*entries, *[None] * (len(shape) - len(entries))), new


def by_place(lookups: dict[int, Tensor]) -> tuple[Tensor | None, ...]:
    """Index tensors by dim as a list with one entry per dim."""
    return tuple(lookups.get(place) for place in range(max(lookups) + 1))
