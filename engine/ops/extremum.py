"""Extrema over dims: amax, amin, aminmax, any, all and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from ...errors import (
    OnefoldError,
    OnefoldIndexError,
    OnefoldRuntimeError,
)
from ...kernels import reduce_ref as kernels
from ..dispatcher import unary
from ..meta import Meta
from ..names import register_function
from ..op import Kernel, Local, Op
from ..sbp import Sbp, partial_max, partial_min
from ..signature import Axis, Rule, pointwise_of
from ..tensor import Tensor
from .arithmetic import div_by_count, mul
from .compare import eq, logical_and, logical_or
from .pointwise import fitting
from .reduce import Dims, dims_of, hashable, reduction, spread, sum
from .unary import isnan

Needs = Sequence[object]


class MinMax(NamedTuple):
    """The least and the greatest values."""

    min: Tensor
    max: Tensor


def check_not_empty(x: Meta, dim: Dims, of_all: type[OnefoldError]) -> None:
    """Raise torch's errors: the extremum of no elements does not exist."""
    if dim is None or dim == ():
        if x.numel == 0:
            raise of_all(
                "expected reduction dim to be specified for input.numel() == 0; specify it with "
                "the dim argument"
            )
        return
    for d in dims_of(dim, x.ndim):
        if d < x.ndim and x.shape[d] == 0:
            raise OnefoldIndexError(f"expected reduction dim {d} to have non-zero size")


# Values.


class Extremum(Op):
    """The greatest or least value over dims; ties share the gradient evenly.

    Where it is nan, every element gets nan as gradient; with `finds_nan` only elements that are
    nan get a share.
    """

    saves_output = True

    def __init__(
        self, name: str, whole: Kernel, identity: str, reduces_to: Sbp, finds_nan: bool = False
    ) -> None:
        self.name = name
        self.finds_nan = finds_nan
        self.kernel = whole  # type: ignore[method-assign]
        self.identity = identity  # "max" or "min": the extremum of no elements
        self.reduces_to = reduces_to

    def infer(self, x: Meta, dim: Dims, keepdim: bool) -> Meta | tuple[Meta, ...]:
        check_not_empty(x, dim, OnefoldRuntimeError)
        return super().infer(x, dim, keepdim)

    def rule(self, axis: Axis, x: Meta, dim: Dims, keepdim: bool) -> Rule:
        return reduction(x.ndim, dim, keepdim, self.reduces_to, (self.reduces_to,))

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        dim, keepdim = attrs
        shape = local.input_shape(0)
        if math.prod(shape) == 0:
            target, identity = local.output_shape(), self.identity
            return lambda x: kernels.extremum_of_none(x, target, identity)
        return partial(local.pick(self.kernel), dim=dim, keepdim=keepdim)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Tensor, x: Tensor, dim: Dims, keepdim: bool
    ) -> tuple[Tensor]:
        extremum = spread(y, x.shape, dim, keepdim)
        found = eq(x, extremum)
        if self.finds_nan:
            found = logical_or(found, both_nan(x, extremum))
        share = div_by_count(dy, sum(found, dim, keepdim))
        return (mul(spread(share, x.shape, dim, keepdim), found),)


def both_nan(x: Tensor, y: Tensor) -> Tensor:
    """Where both are no number."""
    return logical_and(isnan(x), isnan(y))


_amax = unary(Extremum("amax", kernels.amax, "max", partial_max))
_amin = unary(Extremum("amin", kernels.amin, "min", partial_min))
max_of_all = unary(Extremum("max", kernels.amax, "max", partial_max, finds_nan=True))
min_of_all = unary(Extremum("min", kernels.amin, "min", partial_min, finds_nan=True))


@register_function
def amax(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The greatest values over `dim` (none given: over all); ties share the gradient evenly.

    Over a split dim the result is a partial maximum: no data is gathered.
    """
    return _amax(input, hashable(dim), keepdim)


@register_function
def amin(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The least values over `dim` (none given: over all); ties share the gradient evenly."""
    return _amin(input, hashable(dim), keepdim)


@register_function
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """The least and the greatest values, as (min, max)."""
    dims = () if dim is None else dim
    return MinMax(amin(input, dims, keepdim), amax(input, dims, keepdim))


class AnyAll(Op):
    """Whether some, or every, element is not zero."""

    differentiable = False

    def __init__(self, name: str, whole: Kernel, reduces_to: Sbp) -> None:
        self.name = name
        self.kernel = whole  # type: ignore[method-assign]
        self.reduces_to = reduces_to

    def rule(self, axis: Axis, x: Meta, dim: Dims, keepdim: bool) -> Rule:
        passes = (self.reduces_to,) if x.dtype is torch.bool else ()
        if dim == ():  # here torch reduces over no dim at all
            return fitting([*pointwise_of([x]), *reduction(0, None, False, None, passes)], [x])
        return reduction(x.ndim, dim, keepdim, self.reduces_to, passes)


_any = unary(AnyAll("any", kernels.any_of, partial_max))
_all = unary(AnyAll("all", kernels.all_of, partial_min))


@register_function
def any(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether an element over `dim` (None: over all) is not zero."""
    return _any(input, hashable(dim), keepdim)


@register_function
def all(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether every element over `dim` (None: over all) is not zero."""
    return _all(input, hashable(dim), keepdim)
