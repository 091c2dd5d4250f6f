"""Extrema over dims: amax, amin, aminmax, any, all and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from ...errors import OnefoldError, OnefoldIndexError, OnefoldRuntimeError
from ...kernels import reduce_ref as kernels
from ..dispatcher import unary
from ..meta import Meta
from ..names import register_function
from ..op import Gradients, Kernel, Local, Needs, Op
from ..out_tensors import give_to
from ..sbp import Sbp, partial_max, partial_min
from ..signature import Axis, Rule, pointwise_of
from ..tensor import Tensor
from .arithmetic import div_by_count, mul
from .compare import eq, logical_and, logical_or
from .pointwise import fitting
from .reduce import (
    DimAttributes,
    Dims,
    Reduction,
    dims_of,
    hashable,
    reduction,
    spread,
    sum,
)
from .result_shapes import COMMON, REALS, reduced
from .unary import isnan


class MinMax(NamedTuple):
    """The least and the greatest values."""

    min: Tensor
    max: Tensor


class OrderStatistic(Reduction):
    """An extremum, a median or its index; for no elements it raises torch's error."""

    error_of_all: type[OnefoldError] = OnefoldIndexError

    def infer(self, x: Meta, attrs: DimAttributes) -> Meta | tuple[Meta, ...]:
        if (attrs.dim is None or attrs.dim == ()) and x.numel == 0:
            raise self.error_of_all(
                "expected reduction dim to be specified for input.numel() == 0; specify it with "
                "the dim argument"
            )
        for d in dims_of(attrs.dim, x.ndim):
            if d < x.ndim and x.shape[d] == 0:
                raise OnefoldIndexError(f"expected reduction dim {d} to have non-zero size")
        return super().infer(x, attrs)


class Extremum(OrderStatistic):
    """The greatest or least value over dims; ties share the gradient evenly.

    Where it is nan, every element gets nan as gradient; with `finds_nan` only elements that are
    nan get a share.
    """

    attributes = DimAttributes
    saves_output = True
    error_of_all = OnefoldRuntimeError

    def __init__(self, name: str, kernel: Kernel, reduces_to: Sbp, finds_nan: bool = False) -> None:
        super().__init__(name, kernel)
        self.reduces_to = reduces_to
        self.finds_nan = finds_nan

    def deduce(self, x: Meta, attrs: DimAttributes) -> Meta | None:
        shape = reduced(x.shape, *attrs) if x.numel and x.dtype in REALS else None
        return None if shape is None else x.like(shape)

    def rule(self, axis: Axis, x: Meta, attrs: DimAttributes) -> Rule:
        return reduction(x.ndim, *attrs, self.reduces_to, (self.reduces_to,))

    def bind(self, local: Local, attrs: DimAttributes) -> Kernel:
        if math.prod(local.input_shape(0)) == 0:
            target = local.output_shape()
            identity = "max" if self.reduces_to is partial_max else "min"
            return lambda x: kernels.extremum_of_none(x, target, identity)
        return super().bind(local, attrs)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Tensor, x: Tensor, attrs: DimAttributes
    ) -> Gradients:
        extremum = spread(y, x.shape, *attrs)
        found = eq(x, extremum)
        if self.finds_nan:
            found = logical_or(found, both_nan(x, extremum))
        share = div_by_count(dy, sum(found, *attrs))
        return (mul(spread(share, x.shape, *attrs), found),)


def both_nan(x: Tensor, y: Tensor) -> Tensor:
    """Where both are NaN."""
    return logical_and(isnan(x), isnan(y))


_amax = unary(Extremum("amax", kernels.amax, partial_max))
_amin = unary(Extremum("amin", kernels.amin, partial_min))
max_of_all = unary(Extremum("max", kernels.amax, partial_max, finds_nan=True))
min_of_all = unary(Extremum("min", kernels.amin, partial_min, finds_nan=True))


@register_function
def amax(
    input: Tensor, dim: Dims = (), keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """The greatest values over `dim` (none given: over all); ties share the gradient evenly.

    Over a split dim the result is a partial maximum: no data is gathered.
    """
    if out is not None:
        return give_to(out, amax(input, dim, keepdim))
    return _amax(input, hashable(dim), keepdim)


@register_function
def amin(
    input: Tensor, dim: Dims = (), keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """The least values over `dim` (none given: over all); ties share the gradient evenly."""
    if out is not None:
        return give_to(out, amin(input, dim, keepdim))
    return _amin(input, hashable(dim), keepdim)


@register_function
def aminmax(
    input: Tensor,
    *,
    dim: int | None = None,
    keepdim: bool = False,
    out: Sequence[Tensor] | None = None,
) -> MinMax:
    """The least and the greatest values, as (min, max)."""
    if out is not None:
        return give_to(out, aminmax(input, dim=dim, keepdim=keepdim))
    dims = () if dim is None else dim
    return MinMax(amin(input, dims, keepdim), amax(input, dims, keepdim))


class AnyAll(Op):
    """Whether some, or every, element is not zero."""

    attributes = DimAttributes
    order = "row-major"
    differentiable = False

    def __init__(self, name: str, kernel: Kernel, reduces_to: Sbp) -> None:
        super().__init__(name, kernel)
        self.reduces_to = reduces_to

    def deduce(self, x: Meta, attrs: DimAttributes) -> Meta | None:
        shape = None if attrs.dim == () else reduced(x.shape, *attrs)
        if shape is None or x.dtype not in COMMON or x.dtype is torch.uint8:
            return None
        return x.like(shape, torch.bool)

    def rule(self, axis: Axis, x: Meta, attrs: DimAttributes) -> Rule:
        passes = (self.reduces_to,) if x.dtype is torch.bool else ()
        if attrs.dim == ():  # here torch reduces over no dim at all
            return fitting([*pointwise_of([x]), *reduction(0, None, False, None, passes)], [x])
        return reduction(x.ndim, *attrs, self.reduces_to, passes)


_any = unary(AnyAll("any", kernels.any_of, partial_max))
_all = unary(AnyAll("all", kernels.all_of, partial_min))


@register_function
def any(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """Whether an element over `dim` (None: over all) is not zero."""
    if out is not None:
        return give_to(out, any(input, dim, keepdim))
    return _any(input, hashable(dim), keepdim)


@register_function
def all(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """Whether every element over `dim` (None: over all) is not zero."""
    if out is not None:
        return give_to(out, all(input, dim, keepdim))
    return _all(input, hashable(dim), keepdim)
