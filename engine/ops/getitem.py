"""`x[...]`, `x[...] = v`, and elements by mask or position."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...errors import OnefoldRuntimeError
from ..names import register_function
from ..out_tensors import give_to
from ..tensor import Tensor
from ..views import FunctionStep, frozen, link
from .data_movement import match
from .dims import broadcast_tensors, unsqueeze
from .index import fit, put_rows, take_rows
from .index_parsing import (
    MASKS,
    Reader,
    basic_entries,
    by_place,
    lookups_of,
    nonzero,
    read_items,
    replicated_tensor,
    true_columns,
    true_places,
)
from .slicing import any_cut, read_slice, set_slice, slice_by, sliced_shape
from .view import at_least, reshape
from .where import where


@register_function
def getitem(self: Tensor, index: object) -> Tensor:
    """`x[index]`: ints, slices with steps, None, ..., and bool or integer tensors or lists.

    A slice of a split dim becomes a partial sum of what the ranks hold; dims taken whole keep
    their split. A bool mask is read by every process, since the shape depends on it. Raises
    OnefoldIndexError when an index lies outside the tensor.
    """
    basic = basic_entries(self, index)
    if basic is not None:
        entries, new = basic
        whole = bool(new) and entries.count(None) == len(entries)
        return _with_new_dims(self if whole else slice_by(self, entries), new)
    if isinstance(index, Tensor) and index.dtype is torch.int64 and index.ndim and self.ndim:
        return take_rows(self, (index,))
    masked = _by_mask(self, index)
    if masked is not None:
        return take_rows(*masked)
    plain = lookups_of(self, index)
    if plain is not None:
        entries, lookups = plain
        return take_rows(slice_by(self, entries) if any_cut(entries) else self, lookups)
    found = Reader(self, read_items(self, index))
    return _look_up(_with_new_dims(slice_by(self, tuple(found.entries)), found.new), found)


# Elements of a tensor up to which a mask is looked up in each dim, without a view of the tensor.
_MOST_BY_DIM = 1 << 14


def _by_mask(x: Tensor, index: object) -> tuple[Tensor, tuple[Tensor, ...]] | None:
    """For a mask of the first dims of a local tensor, two at least, what it looks up and where.

    That is a vector of places in each dim of the mask, or in these dims as one.
    """
    if not isinstance(index, Tensor) or index.meta.dtype is not torch.bool or x.is_global:
        return None
    mask = index.meta.shape
    if len(mask) < 2 or mask != x.meta.shape[: len(mask)]:
        return None
    if x.meta.numel <= _MOST_BY_DIM:
        return x, true_columns(index)
    rows = true_places(index)
    return reshape(x, (index.numel(), *x.shape[len(mask) :])), (rows,)


def _with_new_dims(y: Tensor, places: Sequence[int]) -> Tensor:
    for place in places:
        y = unsqueeze(y, place)
    return y


def _look_up(y: Tensor, found: Reader) -> Tensor:
    lookups = dict(found.lookups)
    # From the end, so that the places before stay; a 0-d index removes its dim at once, as an int.
    for place in sorted(found.scalars, reverse=True):
        y = _select(y, place, found.scalars[place])
        lookups = {p - (p > place): index for p, index in lookups.items()}
    if not lookups:
        return y
    return take_rows(y, by_place(lookups))


def _select(x: Tensor, place: int, index: Tensor) -> Tensor:
    """The element of dim `place` at an index tensor that is not read: a view, as by an int."""
    at = (*[None] * place, frozen(index))
    step = FunctionStep(
        "select",
        lambda base: take_rows(base, at),
        lambda base, value: put_rows(base, at, value),
        lambda base: base.select(place, 0),
        reads_others=True,
    )
    return link(take_rows(x, at), x, step)


@register_function
def setitem(self: Tensor, index: object, value: object) -> Tensor:
    """The tensor that `self` becomes by `self[index] = value`: a new one, in `self`'s dtype.

    Raises OnefoldRuntimeError when the value does not broadcast to the shape of `self[index]`.
    """
    if isinstance(value, Tensor):
        value = match(value, self.meta)
    else:
        value = replicated_tensor(value, self, self.dtype)
    basic = basic_entries(self, index)
    if basic is not None and not basic[1]:
        entries, _ = basic
        return set_slice(self, fit(value, sliced_shape(entries, self.shape)), entries)
    masked = _set_masked(self, index, value)
    if masked is not None:
        return masked
    flat = _by_mask(self, index)
    if flat is not None:
        made = put_rows(*flat, value)
        return made if flat[0] is self else reshape(made, self.shape)
    plain = lookups_of(self, index)
    if plain is not None:
        entries, lookups = plain
        if not any_cut(entries):
            return put_rows(self, lookups, value)
        return set_slice(self, put_rows(slice_by(self, entries), lookups, value), entries)
    found = Reader(self, read_items(self, index))
    entries = tuple(found.entries)
    if not found.lookups and not found.scalars:
        value = fit(value, found.shape())
        return set_slice(self, reshape(value, sliced_shape(entries, self.shape)), entries)
    # The rows are put into the slice, and the slice into the tensor.
    sliced = part = slice_by(self, entries)
    for place in found.new:
        part = unsqueeze(part, place)
    part = _put(part, found.lookups, found.scalars, value)
    return set_slice(self, reshape(part, sliced.shape), entries)


def _put(
    part: Tensor, lookups: dict[int, Tensor], scalars: dict[int, Tensor], value: Tensor
) -> Tensor:
    """`part` with `value` at index tensors by dim, of which 0-d ones select their dim first."""
    if scalars:
        place = max(scalars)
        index = (*[None] * place, scalars[place])
        others = {p: scalar for p, scalar in scalars.items() if p != place}
        shifted = {p - (p > place): lookup for p, lookup in lookups.items()}
        return put_rows(part, index, _put(take_rows(part, index), shifted, others, value))
    if not lookups:
        return fit(value, tuple(part.shape))
    return put_rows(part, by_place(lookups), value)


def _set_masked(x: Tensor, index: object, value: Tensor) -> Tensor | None:
    """x[mask] = one value, without reading the mask; None for other assignments."""
    if isinstance(index, tuple) and len(index) == 1:
        index = index[0]
    if not isinstance(index, Tensor) or index.dtype is not torch.bool or value.numel() != 1:
        return None
    if tuple(index.shape) != tuple(x.shape[: index.ndim]):
        return None
    mask = reshape(index, (*index.shape, *[1] * (x.ndim - index.ndim)))
    return where(mask, reshape(value, ()), x)


@register_function
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


@register_function
def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements where `mask` is true, in one dim; the two broadcast against each other."""
    if out is not None:
        return give_to(out, masked_select(input, mask))
    if mask.dtype is not torch.bool:
        raise OnefoldRuntimeError(
            f"masked_select: expected BoolTensor for mask, but got {mask.dtype}"
        )
    x, mask = [at_least(each, 1) for each in broadcast_tensors(input, mask)]
    return take_rows(x, nonzero(mask, as_tuple=True))


@register_function
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`input` with the elements where `mask` is true taken from `source`, in order."""
    if mask.dtype is not torch.bool or source.dtype != input.dtype:
        raise OnefoldRuntimeError(
            "masked_scatter expects a bool mask and a source of the input's dtype, but got "
            f"{mask.dtype}, {input.dtype} and {source.dtype}"
        )
    x, mask = broadcast_tensors(input, mask)
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


@register_function
def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements at `index` of the flattened tensor."""
    if out is not None:
        return give_to(out, take(input, index))
    return take_rows(reshape(input, input.numel()), (index,))
