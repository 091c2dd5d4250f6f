"""Basic slices, with integers and slices with steps: reading, its gradient, and assignment."""

from __future__ import annotations

from collections.abc import Sequence
from operator import getitem
from typing import NamedTuple, TypeAlias

import torch

from ...errors import OnefoldIndexError, OnefoldRuntimeError
from ...kernels import slicing_ref as kernels
from ..dispatcher import unary, view_op, with_optional
from ..meta import Meta, Shape
from ..names import register_function
from ..op import Bound, Gradients, Kernel, Local, Needs
from ..sbp import Sbp, broadcast, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .data_movement import DataMovement, Mover, Places, ViewOp, contribution, reductions, wrap
from .view import view

# Per dim of the input: None for all of it, an int that removes it, or (start, stop, step).
Entry: TypeAlias = int | tuple[int, int, int] | None
Entries: TypeAlias = tuple[Entry, ...]


def read_slice(entry: slice, size: int) -> Entry:
    """A Python slice of a dim of this size. Raises OnefoldRuntimeError when its step is not > 0."""
    if entry.step is not None and entry.step <= 0:
        raise OnefoldRuntimeError(
            f"slice step must be positive, but got {entry.step}; use flip first"
        )
    start, stop, step = entry.indices(size)
    if start == 0 and stop == size and step == 1:
        return None
    return start, max(start, stop), step


def read_int(index: int, size: int, dim: int) -> int:
    """An index of a dim of this size, from the start. Raises OnefoldIndexError outside of it."""
    if not -size <= index < size:
        raise OnefoldIndexError(
            f"index {index} is out of bounds for dimension {dim} with size {size}"
        )
    return index % size


def _python(entries: Entries, shape: Sequence[int]) -> tuple[slice | int, ...]:
    return tuple(
        slice(0, size, 1) if entry is None else slice(*entry) if isinstance(entry, tuple) else entry
        for entry, size in zip(entries, shape, strict=True)
    )


def sliced_shape(entries: Sequence[Entry], shape: Sequence[int]) -> Shape:
    """The shape of the slice of a tensor of this shape."""
    return tuple(
        len(range(*entry)) if isinstance(entry, tuple) else size
        for entry, size in zip(entries, shape, strict=True)
        if not isinstance(entry, int)
    )


def _places(entries: Entries) -> list[tuple[int, int]]:
    """(input dim, output dim) for the dims that are taken whole."""
    stay = [i for i, entry in enumerate(entries) if not isinstance(entry, int)]
    return [(i, j) for j, i in enumerate(stay) if entries[i] is None]


def _cut_dims(entries: Entries) -> list[int]:
    return [i for i, entry in enumerate(entries) if entry is not None]


def _local_cuts(big: Meta, position: int, entries: Entries) -> kernels.Cuts | None:
    """The part of the slice that a rank's shard holds."""
    offset, size = big.local_offset(position), big.local_shape(position)
    # Whole dims lie in both tensors alike, so there everything is taken, counted from the shard.
    index = [
        slice(0, n, 1) if entry is None else part
        for entry, part, n in zip(entries, _python(entries, big.shape), size, strict=True)
    ]
    start = [0 if entry is None else o for entry, o in zip(entries, offset, strict=True)]
    return kernels.overlap(index, start, size)


def _plain(entries: Entries, shape: Sequence[int]) -> Kernel:
    """The slice of a shard that is whole in the sliced dims; one dim costs least by itself."""
    cut = _cut_dims(entries)
    entry = entries[cut[0]] if len(cut) == 1 else None
    if isinstance(entry, int):
        return Bound(torch.select, cut[0], entry)
    if entry is not None and entry[2] == 1:
        return Bound(torch.narrow, cut[0], entry[0], entry[1] - entry[0])
    return Bound(getitem, _python(entries, shape))


class SliceAttributes(NamedTuple):
    """The entry of each dim."""

    entries: Entries


class Slice(ViewOp[SliceAttributes]):
    """x[index] for ints and slices, by `Entries`."""

    name = "slice"
    attributes = SliceAttributes

    def kernel(self, x: torch.Tensor, entries: Entries) -> torch.Tensor:
        return x[_python(entries, x.shape)]

    def infer(self, x: Meta, attrs: SliceAttributes) -> Meta:
        return x.like(sliced_shape(attrs.entries, x.shape))

    def places(self, x: Meta, attrs: SliceAttributes) -> Places:
        return _places(attrs.entries)

    def rule(self, axis: Axis, x: Meta, attrs: SliceAttributes) -> Rule:
        cuts = [Signature((split(i),), (contribution(x),)) for i in _cut_dims(attrs.entries)]
        return [*super().rule(axis, x, attrs), *cuts]

    def bind(self, local: Local, attrs: SliceAttributes) -> Kernel:
        big = local.input(0)
        shard = local.input_shape(0)
        if all(shard[i] == big.shape[i] for i in _cut_dims(attrs.entries)):
            return _plain(attrs.entries, shard)
        cuts = _local_cuts(big, local.position, attrs.entries)
        return local.bind(kernels.take, cuts, local.output_shape())

    def gradient(self, dy: Tensor, x: Meta, attrs: SliceAttributes) -> Tensor:
        return _slice_grad(dy, tuple(x.shape), attrs.entries)

    def scatter_view(self, x: Tensor, value: Tensor, index: int, attrs: SliceAttributes) -> Tensor:
        return set_slice(x, value, attrs.entries)


class SliceGradAttributes(NamedTuple):
    """The target shape, and the entry of each dim."""

    shape: Shape
    entries: Entries


class SliceGrad(Mover[SliceGradAttributes]):
    """Zeros of a shape with the input at an index: the gradient of a slice."""

    name = "slice_grad"
    attributes = SliceGradAttributes

    def infer(self, dy: Meta, attrs: SliceGradAttributes) -> Meta:
        return dy.like(attrs.shape)

    def places(self, x: Meta, attrs: SliceGradAttributes) -> Places:
        return [(j, i) for i, j in _places(attrs.entries)]

    def rule(self, axis: Axis, x: Meta, attrs: SliceGradAttributes) -> Rule:
        cuts = [Signature((broadcast,), (split(i),)) for i in _cut_dims(attrs.entries)]
        return [*super().rule(axis, x, attrs), *cuts]

    def bind(self, local: Local, attrs: SliceGradAttributes) -> Kernel:
        cuts = _local_cuts(local.outputs[0], local.position, attrs.entries)
        return local.bind(kernels.put, cuts, local.output_shape())

    def gradient(self, dy: Tensor, x: Meta, attrs: SliceGradAttributes) -> Tensor:
        return _slice(dy, attrs.entries)


class SetSlice(DataMovement):
    """x with a value (absent: zeros) at an index; the value has the slice's shape and x's dtype."""

    name = "set_slice"
    attributes = SliceAttributes
    like = (0,)

    def rule(self, axis: Axis, x: Meta, value: Meta | None, attrs: SliceAttributes) -> Rule:
        def both(mine: Sbp, theirs: Sbp) -> Signature:
            return Signature((mine,) if value is None else (mine, theirs), (mine,))

        found = [both(split(i), split(j)) for i, j in _places(attrs.entries)]
        found += [both(sbp, sbp) for sbp in reductions(x)]
        return [*found, *[both(split(i), broadcast) for i in _cut_dims(attrs.entries)]]

    def bind(self, local: Local, attrs: SliceAttributes) -> Kernel:
        cuts = _local_cuts(local.input(0), local.position, attrs.entries)
        return local.bind(kernels.put_into, cuts)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Meta, value: Meta | None, attrs: SliceAttributes
    ) -> Gradients:
        dx = needs[0] and set_slice(dy, None, attrs.entries)
        return dx, value is not None and needs[1] and _slice(dy, attrs.entries)


_slice = view_op(Slice())
_slice_grad = unary(SliceGrad())
set_slice = with_optional(SetSlice())


def slice_by(x: Tensor, entries: Entries) -> Tensor:
    """The part of a tensor that `Entries` describe; a new tensor also where that is all of it."""
    if any_cut(entries):
        return _slice(x, entries)
    return view(x, x.shape)


def any_cut(entries: Entries) -> bool:
    """Whether a dim is not taken whole."""
    return entries.count(None) != len(entries)


def one_dim(ndim: int, dim: int, entry: Entry) -> Entries:
    """Entries that touch one dim only."""
    return tuple(entry if i == dim else None for i in range(ndim))


@register_function
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` elements of dim `dim` from `start` on, which may count from the end.

    Raises OnefoldRuntimeError when they do not lie inside the dim.
    """
    if not input.ndim:
        raise OnefoldRuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    dim = wrap(dim, input.ndim)
    size = input.shape[dim]
    if length < 0:
        raise OnefoldRuntimeError(f"narrow(): length must be non-negative, but got {length}")
    if not -size <= start <= size:
        raise OnefoldIndexError(
            f"start out of range (expected to be in range of [{-size}, {size}], but got {start})"
        )
    begin = start + size if start < 0 else start
    if begin + length > size:
        raise OnefoldRuntimeError(
            f"start ({begin}) + length ({length}) exceeds dimension size ({size})."
        )
    return slice_by(input, one_dim(input.ndim, dim, read_slice(slice(begin, begin + length), size)))


@register_function
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """Element `index` of dim `dim`, which is removed."""
    if not input.ndim:
        raise OnefoldIndexError("select() cannot be applied to a 0-dim tensor.")
    dim = wrap(dim, input.ndim)
    index = read_int(index.__index__(), input.shape[dim], dim)
    return slice_by(input, one_dim(input.ndim, dim, index))
