"""`x[...] = v` as a function: the new value of the tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...errors import OnefoldRuntimeError
from ..names import named, names
from ..sbp import broadcast
from ..tensor import Tensor
from .dims import expand, unsqueeze
from .getitem import MASKS, Reader, basic_entries, by_place, nonzero, read_items
from .index import put_rows, take_rows
from .slicing import set_slice, slice_by
from .view import reshape


@named
def setitem(self: Tensor, index: Any, value: Any) -> Tensor:
    """The tensor that `self` becomes by `self[index] = value`: a new one, in `self`'s dtype.

    Raises OnefoldRuntimeError when the value does not broadcast to the shape of `self[index]`.
    """
    value = _value(self, value)
    entries = basic_entries(self, index)
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
    found = Reader(self, read_items(self, index))
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
    return put_rows(part, by_place(lookups), value)


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
def index_put(
    input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """`input` with input[indices] = values, or += for `accumulate`; bool masks are read first."""
    read: list[Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in MASKS:
            read.extend(nonzero(index, as_tuple=True))
        else:
            read.append(index)
    return put_rows(input, tuple(read), values, accumulate)
