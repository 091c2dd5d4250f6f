"""Reductions with a formula: var, std, norms, logsumexp, nansum, count_nonzero, prod."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...errors import OnefoldValueError
from ...kernels import reduce as kernels
from ..dispatch import binary, unary
from ..meta import Meta
from ..names import named, names
from ..op import Kernel, Local, Op
from ..sbp import partial_max, partial_min, partial_sum
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .arithmetic import div, mul, pow, square, sub
from .cast import cast
from .extremum import amax
from .pointwise import Elementwise, conj_of
from .reduce import (
    Dims,
    constant_like,
    count_along,
    hashable,
    is_split_along,
    mean,
    product,
    reduction,
    spread,
    sum,
)
from .where import where

Needs = Sequence[object]


# Slopes that have no value at zero count as zero there.


def _root_vjp(needs: Needs, dy: Tensor, y: Tensor, x: Meta) -> tuple[Tensor]:
    return (_or_zero(y, div(dy, mul(y, 2))),)


def _or_zero(x: Tensor, slope: Tensor) -> Tensor:
    """A slope that has no value where x is 0: it counts as 0 there."""
    return where(names.eq(x, 0), 0.0, slope)  # type: ignore[no-any-return]


_root = unary(Elementwise("root", torch.sqrt, _root_vjp, saves=(), saves_output=True))


# Variance.


class Variance(Op):
    """var or std over dims: over a split dim, from the mean of the whole."""

    def __init__(self, name: str, whole: Kernel, is_root: bool) -> None:
        self.name = name
        self.whole = whole
        self.is_root = is_root
        self.saves_output = is_root

    def kernel(self, x: torch.Tensor, dim: Dims, correction: float, keepdim: bool) -> torch.Tensor:
        return self.whole(x, dim, correction=correction, keepdim=keepdim)  # type: ignore[no-any-return]

    def rule(self, axis: Axis, x: Meta, dim: Dims, correction: float, keepdim: bool) -> Rule:
        return reduction(x.ndim, dim, keepdim, None)

    def instead(self, metas: tuple[Meta | None, ...], attrs: tuple[Any, ...]) -> Kernel | None:
        return self.over_split if is_split_along(metas[0], attrs[0]) else None

    def over_split(self, x: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
        apart = sub(x, mean(x, dim, True))
        squares = square(names.abs(apart)) if x.meta.dtype.is_complex else square(apart)
        y = _over(sum(squares, dim, keepdim), x.meta, dim, correction)
        return _root(y) if self.is_root else y  # type: ignore[no-any-return]

    def vjp(
        self,
        needs: Needs,
        dy: Tensor,
        y: Tensor,
        x: Tensor,
        dim: Dims,
        correction: float,
        keepdim: bool,
    ) -> tuple[Tensor]:
        if self.is_root:
            dy = _or_zero(y, div(dy, mul(y, 2)))
        share = _over(mul(dy, 2), x.meta, dim, correction)
        return (mul(spread(share, x.shape, dim, keepdim), sub(x, mean(x, dim, True))),)


def _over(total: Tensor, x: Meta, dim: Dims, correction: float) -> Tensor:
    """The total over the degrees of freedom, which are never negative."""
    freedom = count_along(x, dim) - correction
    return div(total, freedom if freedom > 0 else 0)  # type: ignore[no-any-return]


_var = unary(Variance("var", torch.var, False))
_std = unary(Variance("std", torch.std, True))


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


@named
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
    return _var(input, dim, correction, keepdim)  # type: ignore[no-any-return]


@named
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
    return _std(input, dim, correction, keepdim)  # type: ignore[no-any-return]


@named
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


@named
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


# Norms.


class VectorNorm(Op):
    """(sum of |x|**ord)**(1/ord), the extremes for ord = +-inf, the non-zeros for ord = 0."""

    name = "vector_norm"
    saves_output = True

    def kernel(self, x: torch.Tensor, ord: float, dim: Dims, keepdim: bool) -> torch.Tensor:
        return torch.linalg.vector_norm(x, ord, dim, keepdim)  # type: ignore[no-any-return]

    def rule(self, axis: Axis, x: Meta, ord: float, dim: Dims, keepdim: bool) -> Rule:
        joined = {0: partial_sum, 1: partial_sum, math.inf: partial_max, -math.inf: partial_min}
        return reduction(x.ndim, dim, keepdim, joined.get(ord))

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        ord, dim, keepdim = attrs
        if math.isinf(ord) and product(local.input_shape(0)) == 0:
            target = local.output_shape()
            return lambda x: x.abs().new_full(target, max(0.0, -ord))
        return lambda x: torch.linalg.vector_norm(x, ord, dim, keepdim)

    def instead(self, metas: tuple[Meta | None, ...], attrs: tuple[Any, ...]) -> Kernel | None:
        ord, dim, _ = attrs
        if ord in (0, 1) or math.isinf(ord) or not is_split_along(metas[0], dim):
            return None
        return _norm_over_split

    def vjp(
        self, needs: Needs, dy: Tensor, y: Tensor, x: Tensor, ord: float, dim: Dims, keepdim: bool
    ) -> tuple[Tensor]:
        if ord == 0:
            return (constant_like(x, 0),)
        shape = x.shape
        if ord == 1:
            return (mul(spread(dy, shape, dim, keepdim), names.sgn(x)),)
        if ord == 2:
            ratio = mul(dy, _or_zero(y, names.reciprocal(y)))
            return (mul(spread(ratio, shape, dim, keepdim), x),)
        size = names.abs(x)
        if math.isinf(ord):
            found = names.eq(size, spread(y, shape, dim, keepdim))
            share = spread(div(dy, sum(found, dim, keepdim)), shape, dim, keepdim)
            return (mul(where(found, share, 0.0), names.sgn(x)),)
        ratio = mul(dy, _or_zero(y, pow(y, 1 - ord)))
        slope = mul(names.sgn(x), _or_zero(size, pow(size, ord - 1)))
        return (mul(spread(ratio, shape, dim, keepdim), slope),)


def _norm_over_split(x: Tensor, ord: float, dim: Dims, keepdim: bool) -> Tensor:
    size = names.abs(x) if x.meta.dtype.is_complex else x
    if ord == 2:
        return _power_root(sum(square(size), dim, keepdim), 2)  # type: ignore[no-any-return]
    return _power_root(sum(_power(x, ord), dim, keepdim), ord)  # type: ignore[no-any-return]


def _power_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor, ord: float) -> tuple[Tensor]:
    size = names.abs(x)
    slope = mul(names.sgn(x), _or_zero(size, pow(size, ord - 1)))
    return (mul(dy, mul(slope, ord)),)


def _power_root_vjp(needs: Needs, dy: Tensor, y: Tensor, x: Meta, ord: float) -> tuple[Tensor]:
    return (mul(dy, _or_zero(y, div(pow(y, 1 - ord), ord))),)


_power = unary(Elementwise("norm_power", lambda x, ord: torch.pow(torch.abs(x), ord), _power_vjp))
_power_root = unary(
    Elementwise(
        "norm_root",
        lambda x, ord: torch.sqrt(x) if ord == 2 else torch.pow(x, 1 / ord),
        _power_root_vjp,
        saves=(),
        saves_output=True,
    )
)
_vector_norm = unary(VectorNorm())


@named
def vector_norm(
    input: Tensor,
    ord: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The vector norm of order `ord` over `dim` (None: over all), as torch.linalg.vector_norm.

    A split dim is not gathered: the parts exchange their sums of powers.
    """
    x = input if dtype is None else cast(input, dtype)
    return _vector_norm(x, ord, hashable(dim), keepdim)  # type: ignore[no-any-return]


@named
def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: Any = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The vector norm of order `p` over `dim` (None: over all); "fro" is order 2.

    Raises OnefoldValueError for the nuclear norm.
    """
    if p is None or p == "fro":
        p = 2
    if isinstance(p, str):
        raise OnefoldValueError(f"norm: p must be a number or 'fro', but got {p!r}")
    return vector_norm(input, p, dim, keepdim, dtype=dtype)


# logsumexp.


class LogSumExp(Op):
    """log(sum(exp(x))) over dims."""

    name = "logsumexp"
    saves_output = True

    def kernel(self, x: torch.Tensor, dim: Dims, keepdim: bool) -> torch.Tensor:
        return torch.logsumexp(x, dim, keepdim)  # type: ignore[arg-type]

    def rule(self, axis: Axis, x: Meta, dim: Dims, keepdim: bool) -> Rule:
        return reduction(x.ndim, dim, keepdim, None)

    def instead(self, metas: tuple[Meta | None, ...], attrs: tuple[Any, ...]) -> Kernel | None:
        return self.over_split if is_split_along(metas[0], attrs[0]) else None

    def over_split(self, x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
        x = x if x.meta.is_floating else cast(x, torch.get_default_dtype())
        top = amax(names.detach(x), dim, True)
        top = where(names.isinf(top), 0.0, top)
        total = names.log(sum(names.exp(sub(x, top)), dim, keepdim))
        return names.add(total, top if keepdim else sum(top, dim))  # type: ignore[no-any-return]

    def vjp(
        self, needs: Needs, dy: Tensor, y: Tensor, x: Tensor, dim: Dims, keepdim: bool
    ) -> tuple[Tensor]:
        share = names.exp(sub(x, spread(y, x.shape, dim, keepdim)))
        return (mul(spread(dy, x.shape, dim, keepdim), conj_of(share)),)


_logsumexp = unary(LogSumExp())


@named
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over `dim`, computed without overflow."""
    return _logsumexp(input, hashable(dim), keepdim)  # type: ignore[no-any-return]


# Sums with a condition.


@named
def nansum(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """The sum over `dim` of the elements that are numbers."""
    return sum(_numbers_of(input), dim, keepdim, dtype=dtype)


@named
def nanmean(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """The mean over `dim` of the elements that are numbers."""
    count = sum(names.logical_not(names.isnan(input)), dim, keepdim)
    return div(nansum(input, dim, keepdim, dtype=dtype), count)


def _numbers_of(x: Tensor) -> Tensor:
    return where(names.isnan(x), 0, x) if x.meta.is_floating else x  # type: ignore[no-any-return]


@named
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many elements over `dim` (None: over all) are not zero, as int64."""
    return sum(names.ne(input, 0), dim)


# Products.


class Prod(Op):
    """The product over one dim or all."""

    name = "prod"

    def kernel(self, x: torch.Tensor, dim: int | None, keepdim: bool) -> torch.Tensor:
        return torch.prod(x) if dim is None else torch.prod(x, dim, keepdim)

    def rule(self, axis: Axis, x: Meta, dim: int | None, keepdim: bool) -> Rule:
        return reduction(x.ndim, dim, keepdim, None)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Tensor, dim: int | None, keepdim: bool
    ) -> tuple[Tensor]:
        others = _product_of_others(x, dim)
        return (mul(spread(dy, x.shape, dim, keepdim), conj_of(others)),)


class ProductOfOthers(Op):
    """For each element, the product of the others along the dim (None: of all others)."""

    name = "product_of_others"

    def kernel(self, x: torch.Tensor, dim: int | None) -> torch.Tensor:
        return kernels.product_of_others(x, dim)

    def rule(self, axis: Axis, x: Meta, dim: int | None) -> Rule:
        return reduction(x.ndim, dim, True, None)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Tensor, dim: int | None
    ) -> tuple[Tensor]:
        return (_product_of_others_backward(dy, x, dim),)


class ProductOfOthersBackward(Op):
    """The gradient of that: (dy, x, dim). It has no gradient itself."""

    name = "product_of_others_backward"
    saves = ()

    def infer(self, dy: Meta, x: Meta, dim: int | None) -> Meta:
        return x

    def kernel(self, dy: torch.Tensor, x: torch.Tensor, dim: int | None) -> torch.Tensor:
        return kernels.product_of_others_backward(dy, x, dim)

    def rule(self, axis: Axis, dy: Meta, x: Meta, dim: int | None) -> Rule:
        return [Signature(s.inputs * 2, s.outputs) for s in reduction(x.ndim, dim, True, None)]


_prod = unary(Prod())
_product_of_others = unary(ProductOfOthers())
_product_of_others_backward = binary(ProductOfOthersBackward())


@named
def prod(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The product over `dim` (None: over all); integers and bools give int64.

    The dim must be whole: a split one is gathered first.
    """
    x = input if dtype is None else cast(input, dtype)
    return _prod(x, dim, keepdim)  # type: ignore[no-any-return]
