"""var, std, var_mean and std_mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from ...errors import OnefoldValueError
from ...kernels import reduce_ref as kernels
from ..dispatcher import binary, unary
from ..meta import Meta
from ..names import register_function
from ..op import Kernel, Local, Op
from ..sbp import broadcast, partial_sum
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..views import frozen
from .arithmetic import div, mul, sub
from .cast import narrowed, widened
from .compare import eq
from .pointwise import Elementwise
from .reduce import (
    Dims,
    count_along,
    hashable,
    is_split_along,
    mean,
    reduction,
    spread,
    without_partials,
)
from .unary import isnan
from .where import or_zero, where

Needs = Sequence[object]


# Slopes that have no value at zero count as zero there.


def _root_vjp(needs: Needs, dy: Tensor, y: Tensor, x: Meta) -> tuple[Tensor]:
    return (or_zero(y, div(dy, mul(y, 2))),)


# Variance.


_root = unary(Elementwise("root", torch.sqrt, _root_vjp, saves=(), saves_output=True))


class VarianceAttributes(NamedTuple):
    """The dims, what the count is less by, and whether the dims stay with size 1."""

    dim: Dims
    correction: float
    keepdim: bool


class Variance(Op):
    """var or std over dims: over a split dim, from the mean of the whole."""

    attributes = VarianceAttributes

    def __init__(self, name: str, whole: Kernel, is_root: bool) -> None:
        self.name = name
        self.kernel = whole  # type: ignore[method-assign]
        self.is_root = is_root
        self.saves_output = is_root

    def rule(self, axis: Axis, x: Meta, attrs: VarianceAttributes) -> Rule:
        return reduction(x.ndim, attrs.dim, attrs.keepdim, None)

    def decompose(self, metas: tuple[Meta | None, ...], attrs: VarianceAttributes) -> Kernel | None:
        return self.over_split if is_split_along(metas[0], attrs.dim) else None

    def over_split(self, x: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
        wide = widened(x)
        center = without_partials(mean(frozen(wide), dim, True))
        y = _variance_around(wide, center, dim, correction, keepdim)
        if not _freedom(x.meta, dim, correction):
            y = div(without_partials(y), 0.0)
        return narrowed(_root(y) if self.is_root else y, x.dtype)

    def vjp(
        self,
        needs: Needs,
        dy: Tensor,
        y: Tensor,
        x: Tensor,
        attrs: VarianceAttributes,
    ) -> tuple[Tensor]:
        if self.is_root:
            dy = or_zero(y, div(dy, mul(y, 2)))
        return (_variance_slope(dy, x, *attrs),)


def _freedom(x: Meta, dim: Dims, correction: float) -> float:
    """The degrees of freedom, never negative."""
    return max(0, count_along(x, dim) - correction)


def _variance_slope(dy: Tensor, x: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    freedom = _freedom(x.meta, dim, correction)
    apart = sub(x, without_partials(mean(x, dim, True)))
    if not freedom:  # as in torch, which does not look at the sign
        slope = where(eq(apart, 0), math.nan, where(isnan(apart), apart, math.inf))
        return mul(spread(dy, x.shape, dim, keepdim), slope)
    share = div(mul(dy, 2), freedom)
    return mul(spread(share, x.shape, dim, keepdim), apart)


class VarianceAround(Op):
    """The variance over dims of x, whose mean over them is given: (x, mean, ...).

    A part gives its share of the sum. Without degrees of freedom that is not divided: of a part
    without elements, 0 / 0 would be NaN. The mean gets no gradient: the variance is least there.
    """

    name = "variance_around"
    attributes = VarianceAttributes
    saves = (0,)

    def infer(self, x: Meta, center: Meta, attrs: VarianceAttributes) -> Meta | tuple[Meta, ...]:
        return _var_op.infer(x, attrs)

    def rule(self, axis: Axis, x: Meta, center: Meta, attrs: VarianceAttributes) -> Rule:
        found = []
        for s in reduction(x.ndim, attrs.dim, attrs.keepdim, partial_sum):
            mean_sbp = broadcast if s.outputs[0] is partial_sum else s.inputs[0]
            found.append(Signature((s.inputs[0], mean_sbp), s.outputs))
        return found

    def bind(self, local: Local, attrs: VarianceAttributes) -> Kernel:
        dim, correction, keepdim = attrs
        whole = local.inputs[0]
        assert whole is not None
        freedom = _freedom(whole, dim, correction) or 1.0
        kernel = local.pick(kernels.variance_around)
        return partial(kernel, dim=dim, freedom=freedom, keepdim=keepdim)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Tensor, center: Meta, attrs: VarianceAttributes
    ) -> tuple[Tensor, None]:
        return _variance_slope(dy, x, *attrs), None


_var_op = Variance("var", kernels.var, False)
_var = unary(_var_op)
_std = unary(Variance("std", kernels.std, True))
_variance_around = binary(VarianceAround())


def _settings(
    name: str, dim: Any, unbiased: bool | None, correction: float | None
) -> tuple[Any, float]:
    """(dim, correction) of torch's forms (x, unbiased), (x, dim, unbiased) and correction=."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise OnefoldValueError(
            f"{name}: got both unbiased={unbiased} and correction={correction}; give correction"
        )
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    return hashable(dim), correction


@register_function
def var(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """The variance over `dim` (None: over all), with the count less `correction` (1) below.

    A split dim is not gathered: the parts exchange their sums.
    """
    dim, correction = _settings("var", dim, unbiased, correction)
    return _var(input, dim, correction, keepdim)


@register_function
def std(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """The standard deviation over `dim`: the root of `var`."""
    dim, correction = _settings("std", dim, unbiased, correction)
    return _std(input, dim, correction, keepdim)


@register_function
def var_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """(var, mean) over `dim`."""
    dim, correction = _settings("var_mean", dim, unbiased, correction)
    return _var(input, dim, correction, keepdim), mean(input, dim, keepdim)


@register_function
def std_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """(std, mean) over `dim`."""
    dim, correction = _settings("std_mean", dim, unbiased, correction)
    return _std(input, dim, correction, keepdim), mean(input, dim, keepdim)
