"""Cumulative sums and products along a dim."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from ...kernels import reduce_ref as kernels
from ..dispatcher import binary, unary
from ..meta import Meta
from ..names import register_function
from ..op import Gradients, Needs, Op
from ..out_tensors import give_to
from ..sbp import broadcast, partial_sum
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .arithmetic import mul
from .cast import cast
from .cat_split import cat
from .data_movement import all_but
from .like import constant_like
from .pointwise import conj_of, fitting
from .result_shapes import COMMON, is_dim, summed
from .slicing import narrow


class ScanAttributes(NamedTuple):
    """The dim, and whether to scan it from its end."""

    dim: int
    back: bool


def _in_dtype(
    scan: Callable[[Tensor, int, bool], Tensor], x: Tensor, dim: int, dtype: torch.dtype
) -> Tensor:
    """A scan of x in a dtype. Of an integer one it is computed in int64, which wraps alike."""
    return cast(scan(cast(x, dtype), dim, False), dtype)


def _scanned(x: Meta, dim: int) -> Meta | None:
    """The scan of x along a dim, if it has dims."""
    return x.like(dtype=summed(x.dtype)) if x.dtype in COMMON and is_dim(dim, x.ndim) else None


class CumSum(Op):
    """Sums of each element and those before it, or (`back`) after it."""

    name = "cumsum"
    attributes = ScanAttributes
    order = "row-major"
    saves = ()
    kernel = staticmethod(kernels.cumsum)

    def deduce(self, x: Meta, attrs: ScanAttributes) -> Meta | None:
        return _scanned(x, attrs.dim)

    def rule(self, axis: Axis, x: Meta, attrs: ScanAttributes) -> Rule:
        passes = [Signature((partial_sum,), (partial_sum,))]
        if summed(x.dtype) is not x.dtype:  # the sum of the addends may wrap, theirs do not
            passes = []
        return fitting([*all_but(attrs.dim, x.ndim), *passes], [x])

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta, attrs: ScanAttributes) -> Gradients:
        return (_cumsum(dy, attrs.dim, not attrs.back),)


_cumsum = unary(CumSum())


@register_function
def cumsum(
    input: Tensor, dim: int, *, dtype: torch.dtype | None = None, out: Tensor | None = None
) -> Tensor:
    """The sum of each element and all before it along `dim`; integers and bools give int64.

    The dim must be whole: a split one is gathered first.
    """
    if out is not None:
        return give_to(out, cumsum(input, dim, dtype=dtype or out.dtype))
    return _cumsum(input, dim, False) if dtype is None else _in_dtype(_cumsum, input, dim, dtype)


def _shifted(x: Tensor, dim: int, back: bool, fill: int) -> Tensor:
    """y[i] = x[i - 1], or (`back`) x[i + 1], along a dim; `fill` at the end."""
    size = x.shape[dim]
    end = constant_like(narrow(x, dim, 0, 1), fill)
    rest = narrow(x, dim, int(back), size - 1)
    return cat((rest, end) if back else (end, rest), dim)


def product_of_others(x: Tensor, dim: int) -> Tensor:
    """For each element the product of the others along `dim`, also correct at zeros.

    Products of what comes before and after; dividing the whole product would fail at zeros.
    """
    if not x.ndim or not x.shape[dim]:
        return constant_like(x, 1)
    before, behind = (_shifted(_cumprod(x, dim, back), dim, back, 1) for back in (False, True))
    return mul(before, behind)


class CumProd(Op):
    """The product of each element and all before it, or (`back`) after it.

    The gradient for x[i] is the product of what comes before it, times the sum over all y after
    of dy and the products in between, which is a recurrence: nothing is divided by x.
    """

    name = "cumprod"
    attributes = ScanAttributes
    order = "row-major"
    saves_output = True
    kernel = staticmethod(kernels.cumprod)

    def deduce(self, x: Meta, attrs: ScanAttributes) -> Meta | None:
        return _scanned(x, attrs.dim)

    def rule(self, axis: Axis, x: Meta, attrs: ScanAttributes) -> Rule:
        return all_but(attrs.dim, x.ndim)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Tensor, x: Tensor, attrs: ScanAttributes
    ) -> Gradients:
        dim, back = attrs
        if not x.ndim or not x.shape[dim]:
            return (dy,)
        before = conj_of(_shifted(y, dim, back, 1))
        behind = _recurrence(conj_of(_shifted(x, dim, not back, 0)), dy, dim, not back)
        return (mul(before, behind),)


class Recurrence(Op):
    """y[i] = b[i] + a[i] * y[i - 1] along a dim, or (`back`) with y[i + 1]: (a, b, dim, back)."""

    name = "recurrence"
    attributes = ScanAttributes
    like = (1,)
    saves = (0,)
    saves_output = ((0,), ())
    kernel = staticmethod(kernels.recurrence)

    def rule(self, axis: Axis, a: Meta, b: Meta, attrs: ScanAttributes) -> Rule:
        linear = Signature((broadcast, partial_sum), (partial_sum,))
        return [*all_but(attrs.dim, b.ndim, 2), linear]

    def vjp(
        self, needs: Needs, dy: Tensor, y: Tensor, a: Tensor, b: Meta, attrs: ScanAttributes
    ) -> Gradients:
        dim, back = attrs
        d_b = _recurrence(conj_of(_shifted(a, dim, not back, 0)), dy, dim, not back)
        return needs[0] and mul(d_b, conj_of(_shifted(y, dim, back, 0))), d_b


_cumprod = unary(CumProd())
_recurrence = binary(Recurrence())


@register_function
def cumprod(
    input: Tensor, dim: int, *, dtype: torch.dtype | None = None, out: Tensor | None = None
) -> Tensor:
    """The product of each element and all before it along `dim`.

    The dim must be whole: a split one is gathered first.
    """
    if out is not None:
        return give_to(out, cumprod(input, dim, dtype=dtype or out.dtype))
    return _cumprod(input, dim, False) if dtype is None else _in_dtype(_cumprod, input, dim, dtype)
