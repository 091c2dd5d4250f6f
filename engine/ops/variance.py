"""var, std, var_mean and std_mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from ...errors import OnefoldValueError
from ...kernels import reduce_ref as kernels
from ..dispatcher import binary, unary
from ..meta import Meta
from ..names import register_as
from ..op import Gradients, Kernel, Local, Needs, Op
from ..out_tensors import give_to
from ..sbp import broadcast, partial_sum
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..views import frozen
from .arithmetic import add, div, mul, sub
from .cast import narrowed, widened
from .compare import eq
from .pointwise import Elementwise
from .reduce import (
    Dims,
    Reduction,
    count_along,
    hashable,
    mean,
    reduction,
    spread,
    without_partials,
)
from .result_shapes import FLOATS, reduced
from .unary import isnan
from .where import or_zero, where


def _root_vjp(needs: Needs, dy: Tensor, y: Tensor, x: Meta) -> tuple[Tensor]:
    # A slope that has no value at zero counts as zero there.
    return (or_zero(y, div(dy, mul(y, 2))),)


_root = unary(Elementwise("root", torch.sqrt, _root_vjp, saves=(), saves_output=True))


class VarianceAttributes(NamedTuple):
    """The dims, the correction of the count, and whether the dims stay with size 1."""

    dim: Dims
    correction: float
    keepdim: bool


class Variance(Reduction):
    """var or std over dims; over a split dim from the mean of all parts."""

    attributes = VarianceAttributes

    def __init__(self, name: str, whole: Kernel, is_root: bool) -> None:
        super().__init__(name, whole)
        self.is_root = is_root
        self.saves_output = is_root

    def deduce(self, x: Meta, attrs: VarianceAttributes) -> Meta | None:
        ordinary = x.dtype in FLOATS and x.numel and type(attrs.correction) in (int, float)
        shape = reduced(x.shape, attrs.dim, attrs.keepdim) if ordinary else None
        return None if shape is None else x.like(shape)

    def over_split(self, x: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
        wide = widened(x)
        center = without_partials(mean(frozen(wide), dim, True))
        y = variance_around(wide, center, dim, correction, keepdim)
        if not _freedom(x.meta, dim, correction):
            y = without_partials(y)
            y = add(y, div(frozen(y), 0.0))  # whose gradient is in that of variance_around
        return narrowed(_root(y) if self.is_root else y, x.dtype)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Tensor, x: Tensor, attrs: VarianceAttributes
    ) -> Gradients:
        if self.is_root:
            dy = _root_vjp(needs, dy, y, x.meta)[0]
        return (_variance_slope(dy, x, *attrs),)


def _freedom(x: Meta, dim: Dims, correction: float) -> float:
    """The degrees of freedom, never negative."""
    return max(0, count_along(x, dim) - correction)


def _variance_slope(dy: Tensor, x: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    freedom = _freedom(x.meta, dim, correction)
    apart = sub(x, without_partials(mean(x, dim, True)))
    if not freedom and (dim is None or not x.ndim):  # as in torch, which does not look at the sign
        slope = where(eq(apart, 0), math.nan, where(isnan(apart), apart, math.inf))
        return mul(spread(dy, x.shape, dim, keepdim), slope)
    # Over dims it may be negative, as in torch.
    share = div(mul(dy, 2), freedom or float(count_along(x.meta, dim) - correction))
    return mul(spread(share, x.shape, dim, keepdim), apart)


class VarianceAround(Op):
    """The variance over dims of x, whose mean over them is given: (x, mean, ...).

    A part gives its share of the sum. Without degrees of freedom that is not divided: of a part
    without elements, 0 / 0 would be NaN. The mean gets no gradient: the variance is least there.
    """

    name = "variance_around"
    attributes = VarianceAttributes
    order = "row-major"
    saves = (0,)

    def infer(self, x: Meta, center: Meta, attrs: VarianceAttributes) -> Meta | tuple[Meta, ...]:
        return _var_op.infer(x, attrs)

    def rule(self, axis: Axis, x: Meta, center: Meta, attrs: VarianceAttributes) -> Rule:
        rule = reduction(x.ndim, attrs.dim, attrs.keepdim, partial_sum)
        return [
            Signature(
                (s.inputs[0], broadcast if s.outputs[0] is partial_sum else s.inputs[0]), s.outputs
            )
            for s in rule
        ]

    def bind(self, local: Local, attrs: VarianceAttributes) -> Kernel:
        dim, correction, keepdim = attrs
        freedom = _freedom(local.input(0), dim, correction) or 1.0
        return local.bind(kernels.variance_around, dim, freedom, keepdim)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Tensor, center: Meta, attrs: VarianceAttributes
    ) -> Gradients:
        return _variance_slope(dy, x, *attrs), None


_var_op = Variance("var", kernels.var, False)
_var = unary(_var_op)
_std = unary(Variance("std", kernels.std, True))
variance_around = binary(VarianceAround())


def _settings(
    name: str, dim: Dims, unbiased: bool | None, correction: float | None
) -> tuple[Dims, float]:
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


def _register(name: str, entry: Callable[[Tensor, Dims, float, bool], Tensor], doc: str) -> None:
    def call(
        input: Tensor,
        dim: Dims = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        if out is not None:
            return give_to(out, call(input, dim, unbiased, keepdim, correction=correction))
        dim, correction = _settings(name, dim, unbiased, correction)
        return entry(input, dim, correction, keepdim)

    def with_mean(
        input: Tensor,
        dim: Dims = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        dim, correction = _settings(f"{name}_mean", dim, unbiased, correction)
        return entry(input, dim, correction, keepdim), mean(input, dim, keepdim)

    register_as(name, call, doc)
    register_as(f"{name}_mean", with_mean, f"({name}, mean) over `dim`.")


_register(
    "var",
    _var,
    """The variance over `dim` (None: over all), with the count less `correction` (1) below.

    A split dim is not gathered: the parts exchange their sums.
    """,
)
_register("std", _std, "The standard deviation over `dim`: the root of `var`.")
