"""Reductions that return an index: max, min, argmax, argmin, median and nanmedian."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import torch

from ...errors import OnefoldTypeError
from ...kernels import reduce_ref as kernels
from ..dispatcher import binary, several_of, unary
from ..meta import Meta
from ..names import register_function
from ..op import Gradients, Kernel, Local, Metas, Needs, NoAttributes, Op
from ..out_tensors import give_to
from ..sbp import broadcast, partial_min, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..views import frozen
from .arithmetic import div_by_count
from .compare import eq, logical_or
from .data_movement import IndexedOp
from .extremum import OrderStatistic, amax, amin, both_nan, max_of_all, min_of_all
from .reduce import DimAttributes, Dims, SpreadAttributes, dims_of, reduction, sum
from .result_shapes import REALS, reduced
from .where import maximum, minimum, where


class ValuesAndIndices(NamedTuple):
    """Values and where they were found along a dim."""

    values: Tensor
    indices: Tensor


Statistic: TypeAlias = Tensor | ValuesAndIndices  # of all elements, or along a dim


# Picking along a dim, and its gradient, placing.


def _along(ndim: int, dim: Dims, keepdim: bool) -> list[Signature]:
    """The signatures of (x, index) -> picked in which a dim that is kept is split."""
    found = []
    for s in reduction(ndim, dim, keepdim, None):
        found.append(Signature((s.inputs[0], s.outputs[0]), s.outputs))
    return found


class Pick(IndexedOp[DimAttributes]):
    """x at one index along a dim: (x, index, dim, keepdim) -> values in the index's shape."""

    name = "pick"
    attributes = DimAttributes

    def infer(self, x: Meta, index: Meta, attrs: DimAttributes) -> Meta:
        return index.like(dtype=x.dtype)

    def rule(self, axis: Axis, x: Meta, index: Meta, attrs: DimAttributes) -> Rule:
        passing = [partial_sum]
        if x.ndim and x.dtype is not torch.bool:
            passing = [*map(split, dims_of(attrs.dim, x.ndim)), partial_sum]
        return [
            *_along(x.ndim, *attrs),
            *[Signature((sbp, broadcast), (partial_sum,)) for sbp in passing],
        ]

    def bind(self, local: Local, attrs: DimAttributes) -> Kernel:
        x = local.input(0)
        if not x.shape:
            clone = local.pick(torch.clone)
            return lambda x, index: clone(x)
        (dim,) = dims_of(attrs.dim, x.ndim)
        if x.shape[dim] == local.input_shape(0)[dim]:
            return local.bind(kernels.pick, *attrs)
        return local.bind(kernels.pick_here, *attrs, local.input_offset(0)[dim])

    def gradient(self, dy: Tensor, x: Meta, index: Tensor, attrs: DimAttributes) -> Tensor:
        return _place(dy, index, x.shape, *attrs)


class Place(IndexedOp[SpreadAttributes]):
    """Zeros with values at one index along a dim: (values, index, shape, dim, keepdim)."""

    name = "place"
    attributes = SpreadAttributes

    def infer(self, values: Meta, index: Meta, attrs: SpreadAttributes) -> Meta:
        return values.like(shape=attrs.shape)

    def rule(self, axis: Axis, values: Meta, index: Meta, attrs: SpreadAttributes) -> Rule:
        shape, dim, keepdim = attrs
        kept = [
            Signature((s.outputs[0], s.outputs[0]), (s.inputs[0],))
            for s in _along(len(shape), dim, keepdim)
        ]
        dims = dims_of(dim, len(shape)) if shape else ()
        along = [Signature((broadcast, broadcast), (split(d),)) for d in dims]
        return [*kept, *along, Signature((partial_sum, broadcast), (partial_sum,))]

    def bind(self, local: Local, attrs: SpreadAttributes) -> Kernel:
        shape = local.output_shape()
        if not shape:
            clone = local.pick(torch.clone)
            return lambda values, index: clone(values)
        (dim,) = dims_of(attrs.dim, len(shape))
        return local.bind(kernels.place, shape, *attrs[1:], local.output_offset()[dim])

    def gradient(self, dy: Tensor, x: Meta, index: Tensor, attrs: SpreadAttributes) -> Tensor:
        return _pick(dy, index, attrs.dim, attrs.keepdim)


_pick = binary(Pick())
_place = binary(Place())


# Indices.


class FirstIndex(Op):
    """Where along a dim (None: in the flattened whole) `value` is first found; (x, value) given.

    A part that does not hold the value returns an index larger than every other, so that the
    minimum over the parts is the result.
    """

    name = "first_index"
    attributes = DimAttributes
    differentiable = False

    def infer(self, x: Meta, value: Meta, attrs: DimAttributes) -> Meta:
        return value.like(dtype=torch.int64)

    def rule(self, axis: Axis, x: Meta, value: Meta, attrs: DimAttributes) -> Rule:
        found = []
        for s in reduction(x.ndim, *attrs, partial_min):
            value_sbp = broadcast if s.outputs[0] is partial_min else s.outputs[0]
            found.append(Signature((s.inputs[0], value_sbp), s.outputs))
        return found

    def bind(self, local: Local, attrs: DimAttributes) -> Kernel:
        x = local.input(0)
        offset = local.input_offset(0)
        if attrs.dim is None:
            target = local.output_shape()
            return local.bind(kernels.first_index_flat, offset, tuple(x.shape), target)
        (dim,) = dims_of(attrs.dim, x.ndim)
        return local.bind(kernels.first_index, *attrs, offset[dim] if offset else 0)


_first_index = binary(FirstIndex())


class ArgExtremum(OrderStatistic):
    """The index of the greatest or least value: over a split dim, of the parts' own answers."""

    attributes = DimAttributes
    differentiable = False

    def __init__(self, name: str, whole: Kernel, extremum: Callable[..., Tensor]) -> None:
        super().__init__(name, whole)
        self.extremum = extremum

    def deduce(self, x: Meta, attrs: DimAttributes) -> Meta | None:
        one = attrs.dim is None or type(attrs.dim) is int
        shape = reduced(x.shape, *attrs) if one and x.numel and x.dtype in REALS else None
        return None if shape is None else x.like(shape, torch.int64)

    def over_split(self, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
        value = self.extremum(frozen(x), dim, keepdim)
        return _first_index(x, value, dim, keepdim)


_argmax = unary(ArgExtremum("argmax", kernels.argmax, amax))
_argmin = unary(ArgExtremum("argmin", kernels.argmin, amin))


@register_function
def argmax(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """The index of the first greatest value along `dim` (None: in the flattened tensor)."""
    if out is not None:
        return give_to(out, argmax(input, dim, keepdim))
    return _argmax(input, dim, keepdim)


@register_function
def argmin(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """The index of the first least value along `dim` (None: in the flattened tensor)."""
    if out is not None:
        return give_to(out, argmin(input, dim, keepdim))
    return _argmin(input, dim, keepdim)


class ValueAndIndex(OrderStatistic):
    """An order statistic along a dim and its index: max, min, median."""

    attributes = DimAttributes
    num_outputs = 2
    saves = ()
    saves_output = (1,)
    one_gradient = True

    def __init__(
        self, name: str, whole: Kernel, index: Callable[..., Tensor] | None = None
    ) -> None:
        super().__init__(name, whole)
        self.index = index  # finds the index over a split dim; None: gather that dim

    def deduce(self, x: Meta, attrs: DimAttributes) -> tuple[Meta, Meta] | None:
        one = type(attrs.dim) is int
        shape = reduced(x.shape, *attrs) if one and x.numel and x.dtype in REALS else None
        return None if shape is None else (x.like(shape), x.like(shape, torch.int64))

    def rule(self, axis: Axis, x: Meta, attrs: DimAttributes) -> Rule:
        return [Signature(s.inputs, (*s.outputs, *s.outputs)) for s in super().rule(axis, x, attrs)]

    def decompose(self, metas: Metas, attrs: DimAttributes) -> Kernel | None:
        return None if self.index is None else super().decompose(metas, attrs)

    def over_split(self, x: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
        assert self.index is not None
        index = self.index(frozen(x), dim, keepdim)
        return _pick(x, index, dim, keepdim), index

    def vjp(
        self, needs: Needs, dy: Sequence[Tensor], y: Sequence[Tensor], x: Meta, attrs: DimAttributes
    ) -> Gradients:
        return (_place(dy[0], frozen(y[1]), x.shape, *attrs),)


_max = several_of(ValueAndIndex("max", kernels.max_along, _argmax), "x")
_min = several_of(ValueAndIndex("min", kernels.min_along, _argmin), "x")
_median = several_of(ValueAndIndex("median", kernels.median_along), "x")
_nanmedian = several_of(ValueAndIndex("nanmedian", kernels.nanmedian_along), "x")


def _along_dim(
    along: Callable[[Tensor, int, bool], tuple[Tensor, ...]],
    name: str,
    input: Tensor,
    dim: object,
    keepdim: bool,
) -> ValuesAndIndices:
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise OnefoldTypeError(
            f"{name}: dim must be one int, but got {dim!r}. For several dims use amax or amin."
        )
    return ValuesAndIndices(*along(input, dim, keepdim))


@register_function
def max(
    input: Tensor,
    dim: int | Tensor | None = None,
    keepdim: bool = False,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Statistic:
    """The greatest value of all, or (values, indices) along `dim`; of two tensors, `maximum`.

    The gradient of the greatest of all is shared by ties; along a dim it goes to the index given.
    """
    if out is not None:
        return give_to(out, max(input, dim, keepdim))
    if isinstance(dim, Tensor):
        return maximum(input, dim)
    if dim is None:
        return max_of_all(input, None, False)
    return _along_dim(_max, "max", input, dim, keepdim)


@register_function
def min(
    input: Tensor,
    dim: int | Tensor | None = None,
    keepdim: bool = False,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Statistic:
    """The least value of all, or (values, indices) along `dim`; of two tensors, `minimum`."""
    if out is not None:
        return give_to(out, min(input, dim, keepdim))
    if isinstance(dim, Tensor):
        return minimum(input, dim)
    if dim is None:
        return min_of_all(input, None, False)
    return _along_dim(_min, "min", input, dim, keepdim)


@register_function
def median(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Statistic:
    """The median of all, or (values, indices) along `dim`: the lower one of an even number.

    The dim must be whole: a split one is gathered first.
    """
    if out is not None:
        return give_to(out, median(input, dim, keepdim))
    if dim is None:
        return _median_of_all(input)
    return _along_dim(_median, "median", input, dim, keepdim)


@register_function
def nanmedian(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    out: Tensor | Sequence[Tensor] | None = None,
) -> Statistic:
    """`median` of the values that are numbers."""
    if out is not None:
        return give_to(out, nanmedian(input, dim, keepdim))
    if dim is None:
        return _nanmedian_of_all(input)
    return _along_dim(_nanmedian, "nanmedian", input, dim, keepdim)


class MedianOfAll(Op):
    """The median of every element; ties share the gradient evenly."""

    attributes = NoAttributes
    saves_output = True

    def rule(self, axis: Axis, x: Meta) -> Rule:
        return []

    def vjp(self, needs: Needs, dy: Tensor, y: Tensor, x: Tensor) -> Gradients:
        found = logical_or(eq(x, y), both_nan(x, y))
        return (where(found, div_by_count(dy, sum(found)), 0),)


_median_of_all = unary(MedianOfAll("median", kernels.median))
_nanmedian_of_all = unary(MedianOfAll("nanmedian", kernels.nanmedian))
