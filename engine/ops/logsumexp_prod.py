"""logsumexp, prod, nansum, nanmean and count_nonzero."""

from __future__ import annotations

import torch

from ...kernels import reduce_ref as kernels
from ..dispatcher import unary
from ..meta import Meta
from ..names import register_function
from ..op import Gradients, Needs
from ..out_tensors import give_to
from ..tensor import Tensor
from ..views import frozen
from .arithmetic import add, div_by_count, mul, sub
from .cast import cast, is_half, widened
from .compare import ne
from .extremum import amax
from .pointwise import conj_of
from .reduce import (
    DimAttributes,
    Dims,
    Reduction,
    count_along,
    hashable,
    spread,
    sum,
    without_partials,
)
from .result_shapes import COMMON, FLOATS, reduced, summed
from .scan import product_of_others
from .unary import exp, isinf, isnan, log, logical_not, real
from .view import view
from .where import where


class LogSumExp(Reduction):
    """log(sum(exp(x))) over dims."""

    name = "logsumexp"
    attributes = DimAttributes
    saves_output = True
    kernel = staticmethod(kernels.logsumexp)

    def deduce(self, x: Meta, attrs: DimAttributes) -> Meta | None:
        given = attrs.dim is not None and attrs.dim != () and x.dtype in FLOATS
        shape = reduced(x.shape, *attrs) if given else None
        return None if shape is None else x.like(shape)

    def over_split(self, x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
        x = x if x.meta.is_floating else cast(x, torch.get_default_dtype())
        if is_half(x.dtype):
            return cast(self.over_split(widened(x), dim, keepdim), x.dtype)
        if count_along(x.meta, dim) == 0:
            return log(sum(exp(x), dim, keepdim))
        top = without_partials(amax(real(frozen(x)), dim, True))
        top = where(isinf(top), 0.0, top)
        total = log(sum(exp(sub(x, top)), dim, keepdim))
        return add(total, top if keepdim else sum(top, dim))

    def vjp(
        self, needs: Needs, dy: Tensor, y: Tensor, x: Tensor, attrs: DimAttributes
    ) -> Gradients:
        share = exp(sub(x, spread(y, x.shape, *attrs)))
        return (mul(spread(dy, x.shape, *attrs), conj_of(share)),)


_logsumexp = unary(LogSumExp())


@register_function
def logsumexp(
    input: Tensor, dim: Dims, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """log(sum(exp(input))) over `dim`, computed without overflow."""
    if out is not None:
        return give_to(out, logsumexp(input, dim, keepdim))
    return _logsumexp(input, hashable(dim), keepdim)


# Sums with a condition.


@register_function
def nansum(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The sum over `dim` of the elements that are numbers."""
    if out is not None:
        return give_to(out, nansum(input, dim, keepdim, dtype=dtype or out.dtype))
    numbers = where(isnan(input), 0, input) if input.meta.is_floating else input
    return sum(numbers, dim, keepdim, dtype=dtype)


@register_function
def nanmean(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The mean over `dim` of the elements that are numbers."""
    if out is not None:
        return give_to(out, nanmean(input, dim, keepdim, dtype=dtype or out.dtype))
    count = sum(logical_not(isnan(input)), dim, keepdim)
    return div_by_count(nansum(input, dim, keepdim, dtype=dtype), count)


@register_function
def count_nonzero(input: Tensor, dim: Dims = None) -> Tensor:
    """The number of nonzero elements over `dim` (None: over all), as int64."""
    return sum(ne(input, 0), dim)


# Products.


class Prod(Reduction):
    """The product over one dim or all."""

    name = "prod"
    attributes = DimAttributes
    kernel = staticmethod(kernels.prod)

    def deduce(self, x: Meta, attrs: DimAttributes) -> Meta | None:
        whole = attrs.dim is None
        if x.dtype not in COMMON or not (whole or type(attrs.dim) is int):
            return None
        shape = () if whole else reduced(x.shape, *attrs)
        return None if shape is None else x.like(shape, summed(x.dtype))

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Tensor, attrs: DimAttributes) -> Gradients:
        if attrs.dim is None:
            others = view(product_of_others(view(x, (-1,)), 0), x.shape)
        else:
            assert isinstance(attrs.dim, int)
            others = product_of_others(x, attrs.dim)
        return (mul(spread(dy, x.shape, *attrs), conj_of(others)),)


_prod = unary(Prod())


@register_function
def prod(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The product over `dim` (None: over all); integers and bools give int64.

    The dim must be whole: a split one is gathered first.
    """
    if out is not None:
        return give_to(out, prod(input, dim, keepdim, dtype=dtype or out.dtype))
    if dtype is None:
        return _prod(input, dim, keepdim)
    return cast(_prod(cast(input, dtype), dim, keepdim), dtype)
