"""Basic slices, with integers and slices with steps: reading, its gradient, and assignment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...errors import OnefoldIndexError, OnefoldRuntimeError
from ...kernels import slicing_ref as kernels
from ..dispatcher import binary, unary, view_op
from ..meta import Box, Meta
from ..names import register_function
from ..op import Kernel, Local, Op
from ..sbp import broadcast, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .data_movement import contribution, follows, passes, wrap
from .view import view

Shape = tuple[int, ...]
# Per dim of the input: None for all of it, an int that removes it, or (start, stop, step).
Entry = None | int | tuple[int, int, int]
Entries = tuple[Entry, ...]


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


def _sliced_shape(entries: Entries, shape: Sequence[int]) -> Shape:
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


def _local_cuts(big: Meta, box: Box, entries: Entries) -> kernels.Cuts | None:
    """How the slice meets this rank's shard of the tensor that is sliced."""
    offset, size = box
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
    if not cut:
        return lambda x: x
    entry = entries[cut[0]]
    if len(cut) == 1 and isinstance(entry, int):
        select, dim, place = torch.select, cut[0], entry
        return lambda x: select(x, dim, place)
    if len(cut) == 1 and isinstance(entry, tuple) and entry[2] == 1:
        narrow, dim, start, length = torch.narrow, cut[0], entry[0], entry[1] - entry[0]
        return lambda x: narrow(x, dim, start, length)
    index = _python(entries, shape)
    return lambda x: x[index]


class Slice(Op):
    """x[index] for ints and slices, by `Entries`."""

    name = "slice"
    saves = ()
    aliases = makes_views = True
    flops_per_element = 0.0

    def kernel(self, x: torch.Tensor, entries: Entries) -> torch.Tensor:
        return x[_python(entries, x.shape)]

    def infer(self, x: Meta, entries: Entries) -> Meta:
        return x.like(_sliced_shape(entries, x.shape))

    def rule(self, axis: Axis, x: Meta, entries: Entries) -> Rule:
        found = [*follows(_places(entries)), *passes([x])]
        adds = contribution(x)
        return [*found, *[Signature((split(i),), (adds,)) for i in _cut_dims(entries)]]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        (entries,) = attrs
        big = local.inputs[0]
        assert big is not None
        shard = local.input_shape(0)
        if all(shard[i] == big.shape[i] for i in _cut_dims(entries)):
            return _plain(entries, shard)
        cuts = _local_cuts(big, (local.input_offset(0), shard), entries)
        shape = local.output_shape()
        take = local.pick(kernels.take)
        return lambda x: take(x, cuts, shape)

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, entries: Entries) -> Any:
        return (_slice_grad(dy, tuple(x.shape), entries),)

    def scatter_view(self, x: Tensor, value: Tensor, index: int, *attrs: Any) -> Tensor:
        (entries,) = attrs
        return set_slice(x, value, entries)


class SliceGrad(Op):
    """Zeros of a shape with the input at an index: the gradient of a slice."""

    name = "slice_grad"
    saves = ()
    flops_per_element = 0.0

    def infer(self, dy: Meta, shape: Shape, entries: Entries) -> Meta:
        return dy.like(shape)

    def rule(self, axis: Axis, dy: Meta, shape: Shape, entries: Entries) -> Rule:
        found = [*follows((j, i) for i, j in _places(entries)), *passes([dy])]
        return [*found, *[Signature((broadcast,), (split(i),)) for i in _cut_dims(entries)]]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        _, entries = attrs
        shape = local.output_shape()
        cuts = _local_cuts(local.outputs[0], (local.output_offset(), shape), entries)
        put = local.pick(kernels.put)
        return lambda dy: put(shape, cuts, dy)

    def vjp(
        self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, shape: Shape, entries: Entries
    ) -> Any:
        return (_slice(dy, entries),)


class SetSlice(Op):
    """x with x[index] = value; the value has the slice's shape and x's dtype."""

    name = "set_slice"
    saves = ()
    flops_per_element = 0.0

    def infer(self, x: Meta, value: Meta, entries: Entries) -> Meta:
        return x

    def rule(self, axis: Axis, x: Meta, value: Meta, entries: Entries) -> Rule:
        found = [Signature((split(i), split(j)), (split(i),)) for i, j in _places(entries)]
        found += passes([x, value])
        cut = [Signature((split(i), broadcast), (split(i),)) for i in _cut_dims(entries)]
        return [*found, *cut]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        (entries,) = attrs
        big = local.inputs[0]
        assert big is not None
        box = (local.input_offset(0), local.input_shape(0))
        cuts = _local_cuts(big, box, entries)
        put_into = local.pick(kernels.put_into)
        return lambda x, value: put_into(x, cuts, value)

    def vjp(
        self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, value: Meta, entries: Entries
    ) -> Any:
        dx = needs[0] and _clear(dy, entries)
        return dx, needs[1] and _slice(dy, entries)


class Clear(Op):
    """x with zeros at an index."""

    name = "clear_slice"
    saves = ()
    flops_per_element = 0.0

    def infer(self, x: Meta, entries: Entries) -> Meta:
        return x

    def rule(self, axis: Axis, x: Meta, entries: Entries) -> Rule:
        return [*follows((i, i) for i in range(x.ndim)), *passes([x])]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        (entries,) = attrs
        big = local.inputs[0]
        assert big is not None
        box = (local.input_offset(0), local.input_shape(0))
        cuts = _local_cuts(big, box, entries)
        clear = local.pick(kernels.clear)
        return lambda x: clear(x, cuts)

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, entries: Entries) -> Any:
        return (_clear(dy, entries),)


_slice = view_op(Slice())
_slice_grad = unary(SliceGrad())
_set_slice = binary(SetSlice())
_clear = unary(Clear())


def slice_by(x: Tensor, entries: Entries) -> Tensor:
    """The part of a tensor that `Entries` describe; a new tensor also where that is all of it."""
    if any(entry is not None for entry in entries):
        return _slice(x, entries)
    return view(x, x.shape)


def set_slice(x: Tensor, value: Tensor, entries: Entries) -> Tensor:
    """`x` with `value`, which has the shape and dtype for it, in the place of a slice."""
    return _set_slice(x, value, entries)


def clear(x: Tensor, entries: Entries) -> Tensor:
    """`x` with zeros in the place of a slice."""
    return _clear(x, entries)


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
    """Element `index` of dim `dim`, which goes away."""
    if not input.ndim:
        raise OnefoldIndexError("select() cannot be applied to a 0-dim tensor.")
    dim = wrap(dim, input.ndim)
    index = read_int(index.__index__(), input.shape[dim], dim)
    return slice_by(input, one_dim(input.ndim, dim, index))
