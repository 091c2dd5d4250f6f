"""Indexing by integer tensors as ops: x[i, j], its gradient, and index_put."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...errors import OnefoldIndexError, OnefoldRuntimeError
from ...kernels import indexing_ref as kernels
from ..dispatcher import general
from ..meta import Meta
from ..names import register_function
from ..op import Kernel, Local, Op
from ..sbp import Sbp, broadcast, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .arithmetic import add, mul
from .cast import cast, clone
from .creation import full
from .data_movement import contribution, passes_first, reductions, wrap
from .dims import expand
from .view import reshape

Shape = tuple[int, ...]
Indices = Sequence[Tensor | None]  # one per dim of the indexed tensor; None: all of the dim
IndexMetas = Sequence[Meta | None]

_ALL_BUT_FIRST = tuple(range(1, 66))  # a torch tensor has at most 64 dims


def _indexed(indices: IndexMetas, ndim: int) -> list[bool]:
    return [dim < len(indices) and indices[dim] is not None for dim in range(ndim)]


def _block(indices: IndexMetas) -> list[tuple[int, tuple[Sbp, ...]]]:
    """Per dim of the broadcast index: its place, and how each index is laid out if it is split."""
    there = [index for index in indices if index is not None]
    ndim = max(index.ndim for index in there)
    found = []
    for dim in range(ndim):
        sizes = [x.shape[dim - ndim + x.ndim] if dim >= ndim - x.ndim else 1 for x in there]
        if all(size == 1 for size in sizes):
            continue
        ins = tuple(
            broadcast if size == 1 else split(dim - ndim + x.ndim)
            for size, x in zip(sizes, there, strict=True)
        )
        found.append((dim, ins))
    return found


class _Layout:
    """How the dims of x, of the index and of the result belong together."""

    def __init__(self, indices: IndexMetas, ndim: int) -> None:
        self.indexed = _indexed(indices, ndim)
        self.block = _block(indices)
        self.count = sum(index is not None for index in indices)
        first = kernels.place(self.indexed)
        width = max(index.ndim for index in indices if index is not None)
        rest = [dim for dim in range(ndim) if not self.indexed[dim]]
        # (dim of x, dim of the result) for the dims that are taken whole.
        self.kept = [(dim, j if j < first else j + width) for j, dim in enumerate(rest)]
        # (dim of the result, the layouts of the indices) for the dims of the index.
        self.looked_up = [(first + dim, ins) for dim, ins in self.block]
        self.dims = [dim for dim in range(ndim) if self.indexed[dim]]


def _boxes(offset: Sequence[int], shape: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(offset, shape, strict=True))


class Take(Op):
    """x[indices]: rows of x by integer tensors, which broadcast against each other."""

    name = "take_rows"
    saves = _ALL_BUT_FIRST
    flops_per_element = 0.0

    def kernel(self, x: torch.Tensor, *indices: torch.Tensor | None) -> torch.Tensor:
        return kernels.take(x, indices)

    def infer(self, x: Meta, *indices: Meta | None) -> Meta:
        return x.like(_taken_shape(x.shape, indices))

    def rule(self, axis: Axis, x: Meta, *indices: Meta | None) -> Rule:
        layout = _Layout(indices, x.ndim)
        whole = (broadcast,) * layout.count
        found = [Signature((split(i), *whole), (split(j),)) for i, j in layout.kept]
        found += [Signature((broadcast, *ins), (split(j),)) for j, ins in layout.looked_up]
        found += passes_first(x, layout.count)
        adds = contribution(x)
        return [*found, *[Signature((split(i), *whole), (adds,)) for i in layout.dims]]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        x = local.inputs[0]
        assert x is not None
        mine = local.input_shape(0)
        if all(mine[i] == x.shape[i] for i in _there(local.inputs[1:])):
            take = local.pick(kernels.take)
            return lambda x, *indices: take(x, indices)
        take_held = local.pick(kernels.take_held)
        boxes = _boxes(local.input_offset(0), x.shape)
        shape = local.output_shape()
        return lambda x, *indices: take_held(x, indices, boxes, shape)

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, *indices: Any) -> Any:
        return (_add_rows((dy, *indices), tuple(x.shape)),)


class AddRows(Op):
    """Zeros of a shape, to which the rows of dy are added at the indices: the gradient of Take."""

    name = "add_rows"
    saves = _ALL_BUT_FIRST

    def infer(self, dy: Meta, *args: Any) -> Meta:
        return dy.like(args[-1])

    def rule(self, axis: Axis, dy: Meta, *args: Any) -> Rule:
        *indices, shape = args
        layout = _Layout(indices, len(shape))
        whole = (broadcast,) * layout.count
        adds = contribution(dy)
        found = [Signature((split(j), *whole), (split(i),)) for i, j in layout.kept]
        found += [Signature((split(j), *ins), (adds,)) for j, ins in layout.looked_up]
        found.append(Signature((adds, *whole), (adds,)))
        return [*found, *[Signature((broadcast, *whole), (split(i),)) for i in layout.dims]]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        boxes = _boxes(local.output_offset(), local.outputs[0].shape)
        shape = local.output_shape()
        add_rows = local.pick(kernels.add_rows)
        return lambda dy, *indices: add_rows(dy, indices, boxes, shape)

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, *args: Any) -> Any:
        return (_take((dy, *args[:-1])),)


class PutRows(Op):
    """x with the rows `values` (absent: zeros) at the indices; tensors: x, values, indices."""

    name = "put_rows"
    saves = tuple(range(2, 67))
    flops_per_element = 0.0

    def infer(self, x: Meta, *args: Any) -> Meta:
        return x

    def rule(self, axis: Axis, x: Meta, values: Meta | None, *indices: Meta | None) -> Rule:
        layout = _Layout(indices, x.ndim)
        whole = (broadcast,) * layout.count

        def both(mine: Sbp, theirs: Sbp) -> Signature:
            ins = (mine,) if values is None else (mine, theirs)
            return Signature((*ins, *whole), (mine,))

        found = [both(split(i), split(j)) for i, j in layout.kept]
        found += [both(split(i), broadcast) for i in layout.dims]
        return [*found, *[both(sbp, sbp) for sbp in reductions(x)]]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        x = local.inputs[0]
        assert x is not None
        boxes = _boxes(local.input_offset(0), x.shape)
        put_rows = local.pick(kernels.put_rows)
        return lambda x, values, *indices: put_rows(x, values, indices, boxes)

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        x: Meta,
        values: Meta | None,
        *indices: Tensor | None,
    ) -> Any:
        dx = needs[0] and _put_rows((dy, None, *indices))
        return dx, needs[1] and _take((dy, *indices))


def _there(indices: Sequence[object]) -> list[int]:
    return [dim for dim, index in enumerate(indices) if index is not None]


def _taken_shape(shape: Shape, indices: IndexMetas) -> Shape:
    for index in indices:
        if index is not None and index.dtype not in (torch.int64, torch.int32):
            raise OnefoldIndexError(
                f"tensors used as indices must be long, int or bool tensors, not {index.dtype}"
            )
    there = [index for index in indices if index is not None]
    try:
        block = torch.broadcast_shapes(*[index.shape for index in there])
    except RuntimeError:
        shapes = ", ".join(str(list(index.shape)) for index in there)
        raise OnefoldIndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes " + shapes
        ) from None
    indexed = _indexed(indices, len(shape))
    rest = [size for dim, size in enumerate(shape) if not indexed[dim]]
    first = kernels.place(indexed)
    return (*rest[:first], *block, *rest[first:])


_take = general(Take())
_add_rows = general(AddRows())
_put_rows = general(PutRows())


def take_rows(x: Tensor, indices: Indices) -> Tensor:
    """x[indices], one index (or None) per dim."""
    return _take((x, *indices))


def add_rows(dy: Tensor, indices: Indices, shape: Sequence[int]) -> Tensor:
    """Zeros of `shape` with the rows of `dy` added at `indices`."""
    return _add_rows((dy, *indices), tuple(shape))


def put_rows(x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False) -> Tensor:
    """x with `values`, broadcast to the shape of x[indices], put (or added) there."""
    shape = _taken_shape(
        tuple(x.shape), [None if index is None else index.meta for index in indices]
    )
    if values.dtype != x.dtype:
        raise OnefoldRuntimeError(
            f"index put requires the source and destination dtypes match, but got {x.dtype} for "
            f"the destination and {values.dtype} for the source"
        )
    lead = values.ndim - len(shape)
    if lead > 0 and all(size == 1 for size in values.shape[:lead]):
        values = reshape(values, *values.shape[lead:])
    values = expand(values, *shape) if values.shape != shape else values
    if accumulate:
        return add(x, _add_rows((values, *indices), tuple(x.shape)))
    return _put_rows((x, values, *indices))


# Rows along one dim.


def _along(dim: int, index: Tensor) -> tuple[Tensor | None, ...]:
    return (*[None] * dim, index)


def _vector(index: Tensor, what: str) -> Tensor:
    if index.ndim > 1:
        raise OnefoldIndexError(f"{what}(): Index is supposed to be a vector, not {index.ndim}-d")
    if index.dtype not in (torch.int64, torch.int32):
        raise OnefoldRuntimeError(f"{what}(): Expected dtype int32 or int64, got {index.dtype}")
    return index if index.ndim else reshape(index, 1)


@register_function
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The elements of `dim` at `index`, a vector. A split of `dim` becomes a partial sum."""
    index = _vector(index, "index_select")
    if not input.ndim:
        return reshape(take_rows(reshape(input, 1), (index,)), ())
    return take_rows(input, _along(wrap(dim, input.ndim), index))


@register_function
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """`input` plus alpha times the slices of `source`, added at `index` of `dim`, in order."""
    dim = wrap(dim, input.ndim)
    if input.dtype != source.dtype:
        raise OnefoldRuntimeError(
            "index_add_(): self and source expected to have the same dtype, but got (self) "
            f"{input.dtype} and (source) {source.dtype}"
        )
    index = _vector(index, "index_add")
    _check_slices(input, dim, index, source, "index_add")
    if not input.meta.is_floating:
        alpha = int(alpha)  # as in torch: in the dtype of the input
    added = add_rows(source, _along(dim, index), input.shape)
    return add(input, added if alpha == 1 else mul(added, alpha))


def _check_slices(x: Tensor, dim: int, index: Tensor, source: Tensor, what: str) -> None:
    wanted = (*x.shape[:dim], index.shape[0], *x.shape[dim + 1 :])
    if tuple(source.shape) != wanted:
        raise OnefoldRuntimeError(
            f"{what}(): the source must have shape {list(wanted)} for this index, but has "
            f"{list(source.shape)}"
        )


@register_function
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`input` with the slices of `source` in the places `index` of `dim`."""
    dim, index = wrap(dim, input.ndim), _vector(index, "index_copy")
    _check_slices(input, dim, index, source, "index_copy")
    return put_rows(input, _along(dim, index), source)


@register_function
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """`input` with one value, a number or a 0-d tensor, in the places `index` of `dim`."""
    dim, index = wrap(dim, input.ndim), _vector(index, "index_fill")
    if not isinstance(value, Tensor):
        value = _constant(value, input)
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


def _constant(value: Any, x: Tensor) -> Tensor:
    """A number as a tensor without dims, in the dtype of `x` and where it is."""
    if x.is_local:
        return full((), value, dtype=x.dtype, device=x.device)
    sbp = (broadcast,) * len(x.sbp)
    return full((), value, dtype=x.dtype, placement=x.placement, sbp=sbp)
