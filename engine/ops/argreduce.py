"""Reductions that return an index: max, min, argmax, argmin, median and nanmedian."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from ...errors import OnefoldIndexError, OnefoldTypeError
from ...kernels import reduce_ref as kernels
from ..dispatcher import binary, several, unary
from ..meta import Meta
from ..names import register_function
from ..op import Kernel, Local, Op
from ..sbp import broadcast, partial_min, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..views import frozen
from .arithmetic import div_by_count
from .compare import eq, logical_or
from .extremum import amax, amin, both_nan, check_not_empty, max_of_all, min_of_all
from .reduce import is_split_along, reduction, sum
from .where import maximum, minimum, where

Needs = Sequence[object]


class Extreme(NamedTuple):
    """Values and where they were found along the dim."""

    values: Tensor
    indices: Tensor


# Picking along a dim, and its gradient, placing.


def _along(ndim: int, dim: int, keepdim: bool) -> list[Signature]:
    """The signatures of (x, index) -> picked in which a dim that is kept is split."""
    found = []
    for s in reduction(ndim, dim, keepdim, None):
        found.append(Signature((s.inputs[0], s.outputs[0]), s.outputs))
    return found


class DimAttributes(NamedTuple):
    """The dim, and whether it stays with size 1."""

    dim: int
    keepdim: bool


class Pick(Op):
    """x at one index along a dim: (x, index, dim, keepdim) -> values in the index's shape."""

    name = "pick"
    attributes = DimAttributes
    saves = (1,)

    def infer(self, x: Meta, index: Meta, attrs: DimAttributes) -> Meta:
        return index.like(dtype=x.dtype)

    def rule(self, axis: Axis, x: Meta, index: Meta, attrs: DimAttributes) -> Rule:
        along = (
            Signature((split(attrs.dim % x.ndim), broadcast), (partial_sum,)) if x.ndim else None
        )
        parts = [along] if along and x.dtype is not torch.bool else []
        passes = Signature((partial_sum, broadcast), (partial_sum,))
        return [*_along(x.ndim, *attrs), *parts, passes]

    def bind(self, local: Local, attrs: DimAttributes) -> Kernel:
        dim, keepdim = attrs
        if not local.input_shape(0):
            clone = local.pick(torch.clone)
            return lambda x, index: clone(x)
        start = local.input_offset(0)[dim]
        whole = local.inputs[0]
        assert whole is not None
        if whole.shape[dim] == local.input_shape(0)[dim]:
            return partial(local.pick(kernels.pick), dim=dim, keepdim=keepdim)
        return partial(local.pick(kernels.pick_here), dim=dim, keepdim=keepdim, start=start)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Meta, index: Tensor, attrs: DimAttributes
    ) -> Any:
        return _place(dy, index, x.shape, *attrs), None


class PlaceAttributes(NamedTuple):
    """The shape to reach, the dim, and whether it is there with size 1."""

    shape: tuple[int, ...]
    dim: int
    keepdim: bool


class Place(Op):
    """Zeros with values at one index along a dim: (values, index, shape, dim, keepdim)."""

    name = "place"
    attributes = PlaceAttributes
    saves = (1,)

    def infer(self, values: Meta, index: Meta, attrs: PlaceAttributes) -> Meta:
        return values.like(shape=attrs.shape)

    def rule(
        self,
        axis: Axis,
        values: Meta,
        index: Meta,
        attrs: PlaceAttributes,
    ) -> Rule:
        shape, dim, keepdim = attrs
        kept = [
            Signature((s.outputs[0], s.outputs[0]), (s.inputs[0],))
            for s in _along(len(shape), dim, keepdim)
        ]
        along = [Signature((broadcast, broadcast), (split(dim % len(shape)),))] if shape else []
        return [*kept, *along, Signature((partial_sum, broadcast), (partial_sum,))]

    def bind(self, local: Local, attrs: PlaceAttributes) -> Kernel:
        _, dim, keepdim = attrs
        shape = local.output_shape()
        if not shape:
            clone = local.pick(torch.clone)
            return lambda values, index: clone(values)
        start = local.output_offset()[dim]
        kernel = local.pick(kernels.place)
        return partial(kernel, shape=shape, dim=dim, keepdim=keepdim, start=start)

    def vjp(
        self,
        needs: Needs,
        ddx: Tensor,
        dx: Meta,
        values: Meta,
        index: Tensor,
        attrs: PlaceAttributes,
    ) -> Any:
        return _pick(ddx, index, attrs.dim, attrs.keepdim), None


_pick = binary(Pick())
_place = binary(Place())


# Indices.


class IndexAttributes(NamedTuple):
    """The dim (None: all), and whether it stays with size 1."""

    dim: int | None
    keepdim: bool


class FirstIndex(Op):
    """Where along a dim (None: in the flattened whole) `value` is first found; (x, value) given.

    A part that does not hold the value says so by an index behind every other, so that the least
    of the parts' answers is the answer.
    """

    name = "first_index"
    attributes = IndexAttributes
    differentiable = False

    def infer(self, x: Meta, value: Meta, attrs: IndexAttributes) -> Meta:
        return value.like(dtype=torch.int64)

    def rule(self, axis: Axis, x: Meta, value: Meta, attrs: IndexAttributes) -> Rule:
        found = []
        for s in reduction(x.ndim, attrs.dim, attrs.keepdim, partial_min):
            value_sbp = broadcast if s.outputs[0] is partial_min else s.outputs[0]
            found.append(Signature((s.inputs[0], value_sbp), s.outputs))
        return found

    def bind(self, local: Local, attrs: IndexAttributes) -> Kernel:
        dim, keepdim = attrs
        whole = local.inputs[0]
        assert whole is not None
        offset, shape = local.input_offset(0), tuple(whole.shape)
        target = local.output_shape()
        if dim is None:
            flat = local.pick(kernels.first_index_flat)
            return partial(flat, offset=offset, shape=shape, target=target)
        start = offset[dim] if shape else 0
        return partial(local.pick(kernels.first_index), dim=dim, keepdim=keepdim, start=start)


_first_index = binary(FirstIndex())


class ArgExtremum(Op):
    """The index of the greatest or least value: over a split dim, of the parts' own answers."""

    attributes = IndexAttributes
    differentiable = False

    def __init__(self, name: str, whole: Kernel, extremum: Callable[..., Tensor]) -> None:
        self.name = name
        self.kernel = whole  # type: ignore[method-assign]
        self.extremum = extremum

    def infer(self, x: Meta, attrs: IndexAttributes) -> Meta | tuple[Meta, ...]:
        check_not_empty(x, attrs.dim, OnefoldIndexError)
        return super().infer(x, attrs)

    def rule(self, axis: Axis, x: Meta, attrs: IndexAttributes) -> Rule:
        return reduction(x.ndim, attrs.dim, attrs.keepdim, None)

    def decompose(self, metas: tuple[Meta | None, ...], attrs: IndexAttributes) -> Kernel | None:
        return self.over_split if is_split_along(metas[0], attrs.dim) else None

    def over_split(self, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
        value = self.extremum(frozen(x), dim, keepdim)
        return _first_index(x, value, dim, keepdim)


_argmax = unary(ArgExtremum("argmax", kernels.argmax, amax))
_argmin = unary(ArgExtremum("argmin", kernels.argmin, amin))


@register_function
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the first greatest value along `dim` (None: in the flattened tensor)."""
    return _argmax(input, dim, keepdim)


@register_function
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the first least value along `dim` (None: in the flattened tensor)."""
    return _argmin(input, dim, keepdim)


class ValueAndIndex(Op):
    """An order statistic along a dim and its index: max, min, median."""

    attributes = DimAttributes
    num_outputs = 2
    saves = ()
    saves_output = True

    def __init__(
        self, name: str, whole: Kernel, index: Callable[..., Tensor] | None = None
    ) -> None:
        self.name = name
        self.kernel = whole  # type: ignore[method-assign]
        self.index = index  # finds the index over a split dim; None: gather that dim

    def infer(self, x: Meta, attrs: DimAttributes) -> Meta | tuple[Meta, ...]:
        check_not_empty(x, attrs.dim, OnefoldIndexError)
        return super().infer(x, attrs)

    def rule(self, axis: Axis, x: Meta, attrs: DimAttributes) -> Rule:
        return [
            Signature(s.inputs, (*s.outputs, *s.outputs))
            for s in reduction(x.ndim, attrs.dim, attrs.keepdim, None)
        ]

    def decompose(self, metas: tuple[Meta | None, ...], attrs: DimAttributes) -> Kernel | None:
        if self.index is None or not is_split_along(metas[0], attrs.dim):
            return None
        return self.over_split

    def over_split(self, tensors: tuple[Tensor], dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
        assert self.index is not None
        index = self.index(frozen(tensors[0]), dim, keepdim)
        return _pick(tensors[0], index, dim, keepdim), index

    def vjp(
        self,
        needs: Needs,
        dy: tuple[Tensor, None],
        y: tuple[Tensor, Tensor],
        x: Meta,
        attrs: DimAttributes,
    ) -> tuple[Tensor]:
        return (_place(dy[0], frozen(y[1]), x.shape, *attrs),)


_max = several(ValueAndIndex("max", kernels.max_along, _argmax))
_min = several(ValueAndIndex("min", kernels.min_along, _argmin))
_median = several(ValueAndIndex("median", kernels.median_along))
_nanmedian = several(ValueAndIndex("nanmedian", kernels.nanmedian_along))


@register_function
def max(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The greatest value of all, or (values, indices) along `dim`; of two tensors, `maximum`.

    The gradient of the greatest of all is shared by ties; along a dim it goes to the index given.
    """
    if isinstance(dim, Tensor):
        return maximum(input, dim)
    if dim is None:
        return max_of_all(input, None, False)
    return Extreme(*_max((input,), _one_dim("max", dim), keepdim))


@register_function
def min(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The least value of all, or (values, indices) along `dim`; of two tensors, `minimum`."""
    if isinstance(dim, Tensor):
        return minimum(input, dim)
    if dim is None:
        return min_of_all(input, None, False)
    return Extreme(*_min((input,), _one_dim("min", dim), keepdim))


@register_function
def median(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The median of all, or (values, indices) along `dim`: the lower one of an even number.

    The dim must be whole: a split one is gathered first.
    """
    return _middle(_median, _median_of_all, "median", input, dim, keepdim)


@register_function
def nanmedian(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """`median` of the values that are numbers."""
    return _middle(_nanmedian, _nanmedian_of_all, "nanmedian", input, dim, keepdim)


def _middle(
    along: Callable[..., Any],
    of_all: Callable[..., Any],
    name: str,
    input: Tensor,
    dim: Any,
    keepdim: bool,
) -> Any:
    if dim is None:
        return of_all(input)
    return Extreme(*along((input,), _one_dim(name, dim), keepdim))


class MedianOfAll(Op):
    """The median of every element; ties share the gradient evenly."""

    saves_output = True
    spec = ""

    def __init__(self, name: str, whole: Kernel) -> None:
        self.name = name
        self.kernel = whole  # type: ignore[method-assign]

    def rule(self, axis: Axis, x: Meta) -> Rule:
        return []

    def vjp(self, needs: Needs, dy: Tensor, y: Tensor, x: Tensor) -> tuple[Tensor]:
        found = logical_or(eq(x, y), both_nan(x, y))
        return (where(found, div_by_count(dy, sum(found)), 0),)


_median_of_all = unary(MedianOfAll("median", kernels.median))
_nanmedian_of_all = unary(MedianOfAll("nanmedian", kernels.nanmedian))


def _one_dim(name: str, dim: Any) -> int:
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise OnefoldTypeError(
            f"{name}: dim must be one int, but got {dim!r}. For several dims use amax or amin."
        )
    return dim
