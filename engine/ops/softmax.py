"""softmax and log_softmax. A split dim needs two small reductions and no gather."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...kernels import softmax_ref as kernels
from ..dispatcher import binary, unary
from ..meta import Meta
from ..names import register_function
from ..op import Gradients, Kernel, Metas, Needs, Op
from ..out_tensors import give_to
from ..sbp import broadcast, partial_sum
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..views import frozen
from .arithmetic import div, mul, neg, sub
from .cast import cast, narrowed, widened
from .data_movement import OneDim, all_but
from .extremum import amax
from .reduce import is_split_along, sum, without_partials
from .result_shapes import COMMON, FLOATS, alike, is_dim
from .unary import exp, log


class SoftmaxAttributes(NamedTuple):
    """The dim, and the dtype to compute in (None: that of x)."""

    dim: int
    dtype: torch.dtype | None


class SoftmaxOp(Op):
    """y = exp(x) / sum over dim of exp(x), or its logarithm"""

    attributes = SoftmaxAttributes
    order = "row-major"
    saves = ()
    saves_output = True
    flops_per_element = 4.0

    def __init__(self, log: bool) -> None:
        self.name = "log_softmax" if log else "softmax"
        self.log = log
        self.kernel = kernels.log_softmax if log else kernels.softmax

    def deduce(self, x: Meta, attrs: SoftmaxAttributes) -> Meta | None:
        dtype = x.dtype if attrs.dtype is None else attrs.dtype
        ordinary = x.dtype in COMMON and dtype in FLOATS and is_dim(attrs.dim, x.ndim)
        return x.like(dtype=dtype) if ordinary else None

    def rule(self, axis: Axis, x: Meta, attrs: SoftmaxAttributes) -> Rule:
        return all_but(attrs.dim, x.ndim)

    def decompose(self, metas: Metas, attrs: SoftmaxAttributes) -> Kernel | None:
        if not is_split_along(metas[0], attrs.dim):
            return None
        return _log_softmax_parts if self.log else _softmax_parts

    def vjp(
        self, needs: Needs, dy: Tensor, y: Tensor, x: Meta, attrs: SoftmaxAttributes
    ) -> Gradients:
        grad = _log_softmax_grad if self.log else softmax_grad
        return (cast(grad(dy, y, attrs.dim), x.dtype),)


def _shifted(x: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    """x minus its maximum over dim: for a split dim only the maxima are exchanged."""
    if dtype is not None and dtype is not x.dtype:
        x = cast(x, dtype)
    x = widened(x)
    if 0 in x.shape:
        return x  # nothing to shift, and an empty dim has no maximum
    return sub(x, without_partials(amax(frozen(x), dim, True)))


def _softmax_parts(x: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    e = exp(_shifted(x, dim, dtype))
    return narrowed(div(e, without_partials(sum(e, dim, True))), dtype or x.dtype)


def _log_softmax_parts(x: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    shifted = _shifted(x, dim, dtype)
    total = without_partials(sum(exp(shifted), dim, True))
    return narrowed(sub(shifted, log(total)), dtype or x.dtype)


class SoftmaxGrad(Op):
    """dx = y * (dy - sum over dim of dy * y), or of the logarithm dy - exp(y) * sum of dy"""

    attributes = OneDim
    order = "row-major"
    saves = ((1,), (0, 1))
    flops_per_element = 4.0

    def __init__(self, log: bool) -> None:
        self.name = "log_softmax_grad" if log else "softmax_grad"
        self.log = log
        self.kernel = kernels.log_softmax_grad if log else kernels.softmax_grad

    def deduce(self, dy: Meta, y: Meta, attrs: OneDim) -> Meta | None:
        return y if alike(dy, y) and dy.shape == y.shape and is_dim(attrs.dim, y.ndim) else None

    def rule(self, axis: Axis, dy: Meta, y: Meta, attrs: OneDim) -> Rule:
        passes = Signature((partial_sum, broadcast), (partial_sum,))
        return [*all_but(attrs.dim, y.ndim, 2), passes]

    def decompose(self, metas: Metas, attrs: OneDim) -> Kernel | None:
        if any(meta is not None and is_split_along(meta, attrs.dim) for meta in metas):
            return _log_softmax_grad_parts if self.log else _softmax_grad_parts
        return None

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, g: Tensor, p: Tensor, attrs: OneDim
    ) -> Gradients:
        dim = attrs.dim
        if self.log:
            weighed = mul(dy, exp(p))
            d_g = needs[0] and sub(dy, sum(weighed, dim, True))
            return d_g, needs[1] and neg(mul(weighed, sum(g, dim, True)))
        d_p = None
        if needs[1]:
            by_sum = sub(g, sum(mul(g, p), dim, True))
            d_p = sub(mul(dy, by_sum), mul(g, sum(mul(dy, p), dim, True)))
        return needs[0] and softmax_grad(dy, p, dim), d_p


def _softmax_grad_parts(dy: Tensor, y: Tensor, dim: int) -> Tensor:
    wide_dy, wide_y = widened(dy), widened(y)
    total = without_partials(sum(mul(wide_dy, wide_y), dim, True))
    return narrowed(mul(wide_y, sub(wide_dy, total)), dy.dtype)


def _log_softmax_grad_parts(dy: Tensor, y: Tensor, dim: int) -> Tensor:
    wide_dy = widened(dy)
    total = without_partials(sum(wide_dy, dim, True))
    return narrowed(sub(wide_dy, mul(exp(widened(y)), total)), dy.dtype)


_softmax = unary(SoftmaxOp(log=False))
_log_softmax = unary(SoftmaxOp(log=True))
softmax_grad = binary(SoftmaxGrad(log=False))
_log_softmax_grad = binary(SoftmaxGrad(log=True))


@register_function
def softmax(
    input: Tensor, dim: int, dtype: torch.dtype | None = None, *, out: Tensor | None = None
) -> Tensor:
    """exp(x) divided by its sum over `dim`; computed in `dtype` when one is given.

    `dim` may be split: then only its maxima and sums are exchanged. Raises an error for a dim out
    of range.

    Example: `softmax(x, 1)` of x (2, 3) has rows that add up to 1.
    """
    if out is not None:
        return give_to(out, softmax(input, dim, dtype))
    return _softmax(input, dim, dtype)


@register_function
def log_softmax(
    input: Tensor, dim: int, dtype: torch.dtype | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The logarithm of `softmax(input, dim)`, computed without overflow.

    Example: `log_softmax(x, 1)` of zeros (2, 3) is -log(3) everywhere.
    """
    if out is not None:
        return give_to(out, log_softmax(input, dim, dtype))
    return _log_softmax(input, dim, dtype)


@register_function
def softmin(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """`softmax(-input, dim)`.

    Example: `softmin(x, 1)` is largest where x is smallest.
    """
    return _softmax(neg(input), dim, dtype)
