"""Parses an index from left to right, as torch does: slices, new dims and index tensors."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_int
from typing import Any, SupportsIndex

import numpy as np
import torch

from ...errors import OnefoldIndexError, OnefoldTypeError
from ..names import register_function
from ..sbp import broadcast
from ..tensor import Tensor
from ..values import whole
from .creation import tensor
from .slicing import Entries, Entry, read_int, read_slice

MASKS = (torch.bool, torch.uint8)


def like_index(values: torch.Tensor, x: Tensor) -> Tensor:
    """An index tensor with these values where `x` lives, known to every rank."""
    if x.meta.placement is None:
        return tensor(values, device=x.meta.device)
    placement = x.meta.placement
    return tensor(values, placement=placement, sbp=(broadcast,) * placement.ndim)


@register_function
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of the elements that are not zero, one per row; `as_tuple`: one tensor per dim.

    Their number depends on the values, so every process reads the whole tensor.
    """
    found = torch.nonzero(whole(input))
    if not as_tuple:
        return like_index(found, input)
    columns = found.unbind(1) if input.ndim else (torch.nonzero(whole(input).reshape(1))[:, 0],)
    return tuple(like_index(column, input) for column in columns)


@register_function
def argwhere(input: Tensor) -> Tensor:
    """The indices of the elements that are not zero, one per row."""
    return nonzero(input)  # type: ignore[no-any-return]


class Reader:
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
        if item.dtype in MASKS:
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
    if isinstance(item, Tensor) and item.dtype in MASKS:
        return item.ndim
    return 1


def read_items(x: Tensor, index: Any) -> list[Any]:
    """The items of an index, lists and arrays among them as tensors."""
    items = list(index) if isinstance(index, tuple) else [index]
    return [_item(x, item) for item in items]


def _item(x: Tensor, item: Any) -> Any:
    if isinstance(item, (list, tuple, range, np.ndarray, torch.Tensor)):
        values = _array(item)
        if not isinstance(item, (np.ndarray, torch.Tensor)) and not values.numel():
            values = values.to(torch.int64)
        if values.ndim == 0 and values.dtype not in MASKS:
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


def basic_entries(x: Tensor, index: Any) -> Entries | None:
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


def by_place(lookups: dict[int, Tensor]) -> tuple[Tensor | None, ...]:
    """Index tensors by place as one entry per dim."""
    return tuple(lookups.get(place) for place in range(max(lookups) + 1))
