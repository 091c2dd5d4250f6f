"""softmax and log_softmax. A split dim needs two small reductions and no gather."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ...kernels import softmax_ref as kernels
from ..convert import box
from ..dispatcher import binary, unary
from ..meta import Meta
from ..names import register_function
from ..op import Kernel, Op
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..views import frozen
from .arithmetic import div, mul, neg, sub
from .cast import cast, narrowed, widened
from .extremum import amax
from .reduce import sum
from .unary import exp, log


def is_split_at(meta: Meta, dim: int) -> bool:
    """Whether some axis splits this dim (which may count from the end)."""
    if not meta.shape:
        return False
    where = dim % len(meta.shape)
    return any(sbp.kind == "S" and sbp.dim == where for sbp in meta.nd_sbp)


def combine_partials(statistic: Tensor) -> Tensor:
    """A small reduction over a dim that may be split, joined where it is partial.

    Said outright: left to the op that uses it, the large tensor might be made partial instead.
    """
    meta = statistic.meta
    if not any(sbp.is_partial for sbp in meta.nd_sbp):
        return statistic
    nd_sbp = tuple(broadcast if sbp.is_partial else sbp for sbp in meta.nd_sbp)
    return box(statistic, meta.like(nd_sbp=nd_sbp))


def _other_dims(x: Meta, dim: int, num_inputs: int) -> list[Signature]:
    """The splits of every dim but `dim`, which all inputs and the output share."""
    where = dim % len(x.shape) if x.shape else 0
    return [Signature((split(i),) * num_inputs, (split(i),)) for i in range(x.ndim) if i != where]


class SoftmaxAttributes(NamedTuple):
    """The dim, and the dtype to compute in (None: that of x)."""

    dim: int
    dtype: torch.dtype | None = None


class SoftmaxGradAttributes(NamedTuple):
    """The dim."""

    dim: int


class SoftmaxOp(Op):
    """y = exp(x) / sum over dim of exp(x), or its logarithm"""

    attributes = SoftmaxAttributes
    saves = ()
    saves_output = True
    flops_per_element = 4.0

    def __init__(self, log: bool) -> None:
        self.name = "log_softmax" if log else "softmax"
        self.log = log
        self.kernel = kernels.log_softmax if log else kernels.softmax  # type: ignore[method-assign]

    def infer(self, x: Meta, attrs: SoftmaxAttributes) -> Meta:
        if attrs.dtype is None and x.is_floating and -x.ndim <= attrs.dim < x.ndim:
            return x
        found = super().infer(x, attrs)
        assert isinstance(found, Meta)
        return found

    def rule(self, axis: Axis, x: Meta, attrs: SoftmaxAttributes) -> Rule:
        return _other_dims(x, attrs.dim, 1)

    def decompose(self, metas: tuple[Meta | None, ...], attrs: SoftmaxAttributes) -> Kernel | None:
        x = metas[0]
        assert x is not None
        if not is_split_at(x, attrs.dim):
            return None
        return _log_softmax_parts if self.log else _softmax_parts

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Tensor,
        x: Meta,
        attrs: SoftmaxAttributes,
    ) -> tuple[Tensor]:
        grad = _log_softmax_grad if self.log else softmax_grad
        return (cast(grad(dy, y, attrs.dim), x.dtype),)


def _shifted(x: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    """x less its maximum over dim: a split dim costs the exchange of the maxima only."""
    if dtype is not None and dtype is not x.dtype:
        x = cast(x, dtype)
    x = widened(x)
    if 0 in x.shape:
        return x  # nothing to shift, and an empty dim has no maximum
    return sub(x, combine_partials(amax(frozen(x), dim, True)))


def _softmax_parts(x: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    e = exp(_shifted(x, dim, dtype))
    return narrowed(div(e, combine_partials(sum(e, dim, True))), dtype or x.dtype)


def _log_softmax_parts(x: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    shifted = _shifted(x, dim, dtype)
    total = combine_partials(sum(exp(shifted), dim, True))
    return narrowed(sub(shifted, log(total)), dtype or x.dtype)


class _SoftmaxGradient(Op):
    """The gradient of softmax or log_softmax from that of its result and the result itself."""

    attributes = SoftmaxGradAttributes
    linear_in_y = False
    flops_per_element = 4.0

    def rule(self, axis: Axis, dy: Meta, y: Meta, attrs: SoftmaxGradAttributes) -> Rule:
        passes = Signature((partial_sum, broadcast), (partial_sum,))
        return [*_other_dims(y, attrs.dim, 2), passes]

    def decompose(
        self, metas: tuple[Meta | None, ...], attrs: SoftmaxGradAttributes
    ) -> Kernel | None:
        dy, y = metas
        assert dy is not None
        assert y is not None
        if is_split_at(dy, attrs.dim) or is_split_at(y, attrs.dim):
            return type(self).parts
        return None

    @staticmethod
    def parts(dy: Tensor, y: Tensor, dim: int) -> Tensor:
        """The same in smaller ops."""
        raise NotImplementedError


class SoftmaxGrad(_SoftmaxGradient):
    """dx = y * (dy - sum over dim of dy * y)"""

    name = "softmax_grad"
    kernel = staticmethod(kernels.softmax_grad)

    @staticmethod
    def parts(dy: Tensor, y: Tensor, dim: int) -> Tensor:
        wide_dy, wide_y = widened(dy), widened(y)
        total = combine_partials(sum(mul(wide_dy, wide_y), dim, True))
        return narrowed(mul(wide_y, sub(wide_dy, total)), dy.dtype)

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        g: Tensor,
        p: Tensor,
        attrs: SoftmaxGradAttributes,
    ) -> tuple[Tensor | None, Tensor | None]:
        dim = attrs.dim
        d_g = softmax_grad(dy, p, dim) if needs[0] else None
        if not needs[1]:
            return d_g, None
        by_sum = sub(g, sum(mul(g, p), dim, True))
        by_y = sum(mul(dy, p), dim, True)
        return d_g, sub(mul(dy, by_sum), mul(g, by_y))


class LogSoftmaxGrad(_SoftmaxGradient):
    """dx = dy - exp(y) * sum over dim of dy"""

    name = "log_softmax_grad"
    kernel = staticmethod(kernels.log_softmax_grad)

    @staticmethod
    def parts(dy: Tensor, y: Tensor, dim: int) -> Tensor:
        wide_dy = widened(dy)
        total = combine_partials(sum(wide_dy, dim, True))
        return narrowed(sub(wide_dy, mul(exp(widened(y)), total)), dy.dtype)

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        g: Tensor,
        log_p: Tensor,
        attrs: SoftmaxGradAttributes,
    ) -> tuple[Tensor | None, Tensor | None]:
        dim = attrs.dim
        p = exp(log_p)
        weighed = mul(dy, p)
        d_g = d_log_p = None
        if needs[0]:
            d_g = sub(dy, sum(weighed, dim, True))
        if needs[1]:
            d_log_p = neg(mul(weighed, sum(g, dim, True)))
        return d_g, d_log_p


_softmax = unary(SoftmaxOp(log=False))
_log_softmax = unary(SoftmaxOp(log=True))
softmax_grad = binary(SoftmaxGrad())
_log_softmax_grad = binary(LogSoftmaxGrad())


@register_function
def softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """exp(x) divided by its sum over `dim`; computed in `dtype` when one is given.

    `dim` may be split: then only its maxima and sums are exchanged. Raises an error for a dim out
    of range.

    Example: `softmax(x, 1)` of x (2, 3) has rows that add up to 1.
    """
    return _softmax(input, dim, dtype)


@register_function
def log_softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """The logarithm of `softmax(input, dim)`, computed without overflow.

    Example: `log_softmax(x, 1)` of zeros (2, 3) is -log(3) everywhere.
    """
    return _log_softmax(input, dim, dtype)


@register_function
def softmin(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """`softmax(-input, dim)`.

    Example: `softmin(x, 1)` is largest where x is smallest.
    """
    return _softmax(neg(input), dim, dtype)
