"""Indexing by integer tensors as ops: x[i, j], its gradient, and index_put."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch

from ...errors import OnefoldIndexError, OnefoldRuntimeError
from ...kernels import indexing_ref as kernels
from ..argument_types import NumberLike
from ..dispatch_plan import check_tensors
from ..dispatcher import general_of
from ..meta import Meta, Shape
from ..names import register_function
from ..op import Arg, Gradients, Kernel, Local, Needs, NoAttributes, Op
from ..out_tensors import give_to
from ..sbp import Sbp, broadcast, split
from ..signature import Axis, Rule, Signature, pointwise_of
from ..tensor import Tensor
from .arithmetic import add, mul
from .cast import cast, clone
from .data_movement import DataMovement, PerDim, contribution, passes_first, reductions, wrap
from .dims import expand
from .like import new_full
from .view import reshape

Indices = Sequence[Tensor | None]  # one per dim of the indexed tensor; None: all of the dim
IndexMetas = Sequence[Meta | None]

_ALL_BUT_FIRST = tuple(range(1, 66))  # a torch tensor has at most 64 dims


def _indexed(indices: Sequence[object]) -> list[int]:
    """The dims that have an index."""
    return [dim for dim, index in enumerate(indices) if index is not None]


def _ndims(indices: IndexMetas) -> list[int | None]:
    """The number of dims of each index."""
    return [None if index is None else index.ndim for index in indices]


class _Layout:
    """The correspondence of the dims of x, of the index and of the result."""

    def __init__(self, indices: IndexMetas, ndim: int) -> None:
        there = [index for index in indices if index is not None]
        self.dims = _indexed(indices)
        self.whole = (broadcast,) * len(there)
        first = kernels.place([dim in self.dims for dim in range(ndim)])
        width = max(index.ndim for index in there)
        rest = [dim for dim in range(ndim) if dim not in self.dims]
        # (dim of x, dim of the result) for the dims that are taken whole.
        self.kept = [(dim, j if j < first else j + width) for j, dim in enumerate(rest)]
        # (dim of the result, the layouts of the indices) for the dims of the index.
        self.looked_up = [(first + s.outputs[0].dim, s.inputs) for s in pointwise_of(there)]


def _boxes(offset: Shape, shape: Shape) -> list[tuple[int, int]]:
    return list(zip(offset, shape, strict=True))


class Take(DataMovement):
    """x[indices]: rows of x by integer tensors, which broadcast against each other."""

    name = "take_rows"
    attributes = NoAttributes
    saves = _ALL_BUT_FIRST

    def infer(self, x: Meta, *indices: Meta | None) -> Meta:
        return x.like(_taken_shape(x.shape, indices))

    def rule(self, axis: Axis, x: Meta, *indices: Meta | None) -> Rule:
        layout = _Layout(indices, x.ndim)
        found = [Signature((split(i), *layout.whole), (split(j),)) for i, j in layout.kept]
        found += [Signature((broadcast, *ins), (split(j),)) for j, ins in layout.looked_up]
        found += passes_first(x, len(layout.whole))
        adds = contribution(x)
        return [*found, *[Signature((split(i), *layout.whole), (adds,)) for i in layout.dims]]

    def bind(self, local: Local, attrs: NoAttributes) -> Kernel:
        x = local.input(0)
        mine = local.input_shape(0)
        indices = local.inputs[1:]
        if all(mine[i] == x.shape[i] for i in _indexed(indices)):
            take = local.pick(kernels.take)
            if take is kernels.take and local.device_type == "cpu":
                return kernels.taking(_ndims(indices))
            return lambda x, *indices: take(x, indices)
        take_held = local.pick(kernels.take_held)
        boxes = _boxes(local.input_offset(0), x.shape)
        shape = local.output_shape()
        return lambda x, *indices: take_held(x, indices, boxes, shape)

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta, *indices: Tensor | None) -> Gradients:
        return (_add_rows((dy, *indices), tuple(x.shape)),)


class AddRows(Op):
    """Zeros of a shape with the rows of dy added at the indices: the gradient of Take."""

    name = "add_rows"
    attributes = PerDim
    saves = _ALL_BUT_FIRST

    def infer(self, dy: Meta, *args: Arg) -> Meta:
        return dy.like(args[-1].sizes)

    def rule(self, axis: Axis, dy: Meta, *args: Arg) -> Rule:
        *indices, attrs = args
        layout = _Layout(indices, len(attrs.sizes))
        adds, whole = contribution(dy), layout.whole
        found = [Signature((split(j), *whole), (split(i),)) for i, j in layout.kept]
        found += [Signature((split(j), *ins), (adds,)) for j, ins in layout.looked_up]
        found.append(Signature((adds, *whole), (adds,)))
        return [*found, *[Signature((broadcast, *whole), (split(i),)) for i in layout.dims]]

    def bind(self, local: Local, attrs: PerDim) -> Kernel:
        boxes = _boxes(local.output_offset(), attrs.sizes)
        shape = local.output_shape()
        add_rows = local.pick(kernels.add_rows)
        if add_rows is kernels.add_rows and local.device_type == "cpu":
            return kernels.adding(_ndims(local.inputs[1:]), boxes, shape)
        return lambda dy, *indices: add_rows(dy, indices, boxes, shape)

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta, *args: Arg) -> Gradients:
        return (_take((dy, *args[:-1])),)


class PutRows(DataMovement):
    """x with the rows `values` (absent: zeros) at the indices; tensors: x, values, indices."""

    name = "put_rows"
    attributes = NoAttributes
    saves = tuple(range(2, 67))

    def infer(self, x: Meta, values: Meta | None, *indices: Meta | None) -> Meta:
        if values is not None:
            _check_dtypes(x, values)
        return x

    def rule(self, axis: Axis, x: Meta, values: Meta | None, *indices: Meta | None) -> Rule:
        layout = _Layout(indices, x.ndim)

        def both(mine: Sbp, theirs: Sbp) -> Signature:
            ins = (mine,) if values is None else (mine, theirs)
            return Signature((*ins, *layout.whole), (mine,))

        found = [both(split(i), split(j)) for i, j in layout.kept]
        found += [both(split(i), broadcast) for i in layout.dims]
        return [*found, *[both(sbp, sbp) for sbp in reductions(x)]]

    def bind(self, local: Local, attrs: NoAttributes) -> Kernel:
        boxes = _boxes(local.input_offset(0), local.outputs[0].shape)
        put_rows = local.pick(kernels.put_rows)
        return lambda x, values, *indices: put_rows(x, values, indices, boxes)

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, *args: Arg) -> Gradients:
        indices = args[2:]
        return needs[0] and _put_rows((dy, None, *indices)), needs[1] and _take((dy, *indices))


def _check_dtypes(x: Meta, values: Meta) -> None:
    if values.dtype != x.dtype:
        raise OnefoldRuntimeError(
            f"index put requires the source and destination dtypes match, but got {x.dtype} for "
            f"the destination and {values.dtype} for the source"
        )


@lru_cache(maxsize=4096)
def _taken_shape(shape: Shape, indices: tuple[Meta | None, ...]) -> Shape:
    there = [index for index in indices if index is not None]
    for index in there:
        if index.dtype not in (torch.int64, torch.int32):
            raise OnefoldIndexError(
                f"tensors used as indices must be long, int or bool tensors, not {index.dtype}"
            )
    try:
        return kernels.take_shape(shape, indices)
    except RuntimeError:
        shapes = ", ".join(str(list(index.shape)) for index in there)
        raise OnefoldIndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes " + shapes
        ) from None


_INDICES = "index0? index1? index2?"
_take = general_of(Take(), f"x {_INDICES}")
_add_rows = general_of(AddRows(), f"dy {_INDICES}")
_put_rows = general_of(PutRows(), f"x values? {_INDICES}")


def take_rows(x: Tensor, indices: Indices) -> Tensor:
    """x[indices], one index (or None) per dim."""
    return _take((x, *indices))


def put_rows(x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False) -> Tensor:
    """x with `values`, broadcast to the shape of x[indices], put (or added) there."""
    metas = tuple([None if index is None else index.meta for index in indices])
    values = fit(values, _taken_shape(x.meta.shape, metas))
    if accumulate:
        _check_dtypes(x.meta, values.meta)
        return add(x, _add_rows((values, *indices), tuple(x.shape)))
    return _put_rows((x, values, *indices))


def fit(value: Tensor, shape: Shape) -> Tensor:
    """A value broadcast to the shape that it replaces; surplus leading dims have size 1."""
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
    return expand(value, shape)


# Rows along one dim.


def _along(dim: int, index: Tensor) -> tuple[Tensor | None, ...]:
    return (*[None] * dim, index)


def add_rows(values: Tensor, dim: int, index: Tensor, shape: Shape) -> Tensor:
    """Zeros of a shape with the slices of `values` added at the positions `index` of `dim`."""
    return _add_rows((values, *_along(dim, index)), shape)


def vector(index: Tensor, what: str) -> Tensor:
    """The index as a vector; raises torch's errors for what is none."""
    if index.ndim > 1:
        raise OnefoldIndexError(f"{what}(): Index is supposed to be a vector, not {index.ndim}-d")
    if index.dtype not in (torch.int64, torch.int32):
        raise OnefoldRuntimeError(f"{what}(): Expected dtype int32 or int64, got {index.dtype}")
    return index if index.ndim else reshape(index, 1)


@register_function
def index_select(input: Tensor, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements of `dim` at `index`, a vector. A split of `dim` becomes a partial sum."""
    if out is not None:
        return give_to(out, index_select(input, dim, index))
    index = vector(index, "index_select")
    if not input.ndim:
        return reshape(take_rows(reshape(input, 1), (index,)), ())
    return take_rows(input, _along(wrap(dim, input.ndim), index))


@register_function
def index_add(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    *,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`input` plus alpha times the slices of `source`, added at `index` of `dim`, in order."""
    if out is not None:
        return give_to(out, index_add(input, dim, index, source, alpha=alpha))
    check_tensors("index_add", input, index, source)
    index = vector(index, "index_add")
    if input.ndim == source.ndim == 0:
        whole = index_add(reshape(input, 1), dim, index, reshape(source, 1), alpha=alpha)
        return reshape(whole, ())
    if input.meta.dtype != source.meta.dtype:
        raise OnefoldRuntimeError(
            "index_add_(): self and source expected to have the same dtype, but got (self) "
            f"{input.dtype} and (source) {source.dtype}"
        )
    dim = slices_dim(input.meta, dim, index.meta, source.meta, "index_add")
    if alpha == 1:
        return add(input, add_rows(source, dim, index, tuple(input.shape)))
    if not input.meta.is_floating:
        alpha = int(alpha)  # as in torch: in the dtype of the input
    added = add_rows(source, dim, index, tuple(input.shape))
    return add(input, mul(added, alpha))


@lru_cache(maxsize=4096)
def slices_dim(x: Meta, dim: int, index: Meta, source: Meta, what: str) -> int:
    """The dim counted from 0; checks that the source has the slices of an index."""
    dim = wrap(dim, x.ndim)
    wanted = (*x.shape[:dim], index.shape[0], *x.shape[dim + 1 :]) if x.ndim else ()
    if tuple(source.shape) != wanted:
        raise OnefoldRuntimeError(
            f"{what}(): the source must have shape {list(wanted)} for this index, but has "
            f"{list(source.shape)}"
        )
    return dim


@register_function
def index_copy(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """`input` with the slices of `source` at the positions `index` of `dim`."""
    if out is not None:
        return give_to(out, index_copy(input, dim, index, source))
    check_tensors("index_copy", input, index, source)
    index = vector(index, "index_copy")
    if not source.ndim and input.ndim < 2:  # a slice of one element
        source = reshape(source, 1)
    if not input.ndim:
        return reshape(index_copy(reshape(input, 1), dim, index, source), ())
    dim = slices_dim(input.meta, dim, index.meta, source.meta, "index_copy")
    return put_rows(input, _along(dim, index), source)


@register_function
def index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor | NumberLike) -> Tensor:
    """`input` with one value, a number or a 0-d tensor, at the positions `index` of `dim`."""
    dim, index = wrap(dim, input.ndim), vector(index, "index_fill")
    if not isinstance(value, Tensor):
        value = new_full(input, (), value)
    elif value.ndim:
        raise OnefoldRuntimeError(
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)."
        )
    value = cast(value, input.dtype)
    if not input.ndim:
        return reshape(put_rows(reshape(input, 1), (index,), value), ())
    if not input.numel() and input.shape[dim]:
        return clone(input)  # torch does not look at the index either
    return put_rows(input, _along(dim, index), value)
