"""Elementwise functions of one tensor. A row gives the kernel and the derivative."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import torch

from ...kernels import pointwise_ref as kernels
from ..dispatcher import unary
from ..meta import Meta
from ..names import register_function
from ..op import Kernel
from ..signature import Signature
from ..tensor import Tensor
from ..views import FunctionStep, link, read_only
from .arithmetic import div, mul, neg, zeros_vjp
from .cast import cast
from .compare import ge, le, logical_and
from .elementwise import elementwise
from .pointwise import INCREASING, Elementwise, Entry, conj_of, exact, register_elementwise
from .reduce import constant_like
from .where import or_zero, where

Needs = Sequence[object]
Slope = Callable[[Tensor], Tensor]
Function = Callable[[Tensor], Tensor]


def _smooth(kernel: Kernel, slope: Slope, passes: tuple[Signature, ...] = ()) -> Function:
    """A function of torch with its derivative: of x, or of y where its parameter is named so."""
    name = kernel.__name__
    by_y = list(signature(slope).parameters) == ["y"]

    def vjp(needs: Needs, dy: Tensor, y: Any, x: Any) -> tuple[Tensor]:
        return (mul(dy, conj_of(slope(y if by_y else x))),)

    saves = () if by_y else None
    op = Elementwise(name, kernel, vjp, passes=passes, saves=saves, saves_output=by_y)
    return register_elementwise(unary(op))


def _flat(kernel: Kernel) -> Function:
    """A step function of torch: its derivative is zero."""
    op = Elementwise(kernel.__name__, kernel, zeros_vjp, passes=INCREASING, saves=())
    return register_elementwise(unary(op))


def _predicate(kernel: Kernel) -> Function:
    """A function of torch without a derivative."""
    return register_elementwise(unary(Elementwise(kernel.__name__, kernel)))


# Exponentials, logarithms, roots.

exp = _smooth(torch.exp, lambda y: y, INCREASING)
exp2 = _smooth(torch.exp2, lambda y: y * math.log(2), INCREASING)
expm1 = _smooth(torch.expm1, lambda y: y + 1, INCREASING)
sqrt = _smooth(torch.sqrt, lambda y: 0.5 / y)
rsqrt = _smooth(torch.rsqrt, lambda y: -0.5 * (y * y * y))
reciprocal = _smooth(torch.reciprocal, lambda y: neg(y * y))
log2 = _smooth(torch.log2, lambda x: 1 / (x * math.log(2)))
log10 = _smooth(torch.log10, lambda x: 1 / (x * math.log(10)))
log1p = _smooth(torch.log1p, lambda x: 1 / (x + 1))


def _log_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor) -> tuple[Tensor]:
    return (div(dy, conj_of(x)),)


log: Function = register_elementwise(unary(Elementwise("log", torch.log, _log_vjp)))


def _square_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor) -> tuple[Tensor]:
    return (mul(dy, mul(conj_of(x), 2)),)


square: Function = register_elementwise(unary(Elementwise("square", torch.square, _square_vjp)))

# Trigonometric and hyperbolic functions.


def _cos_slope(x: Tensor) -> Tensor:
    return neg(sin(x))


cos = _smooth(torch.cos, _cos_slope)
sin = _smooth(torch.sin, cos)
tan = _smooth(torch.tan, lambda y: y * y + 1)
asin = _smooth(torch.asin, lambda x: rsqrt(1 - x * x))
acos = _smooth(torch.acos, lambda x: neg(rsqrt(1 - x * x)))
atan = _smooth(torch.atan, lambda x: 1 / (x * x + 1), INCREASING)


def _cosh_slope(x: Tensor) -> Tensor:
    return sinh(x)


cosh = _smooth(torch.cosh, _cosh_slope)
sinh = _smooth(torch.sinh, cosh, INCREASING)
asinh = _smooth(torch.asinh, lambda x: rsqrt(x * x + 1), INCREASING)
acosh = _smooth(torch.acosh, lambda x: rsqrt(x - 1) * rsqrt(x + 1))
atanh = _smooth(torch.atanh, lambda x: 1 / (1 - x * x))
for _function in (asin, acos, atan, asinh, acosh, atanh):
    register_elementwise(_function, f"arc{_function.__name__[1:]}")


def _sinc_slope(x: Tensor) -> Tensor:
    angle = x * math.pi
    return or_zero(x, (angle * cos(angle) - sin(angle)) / (x * angle))


@elementwise(torch.sinc, gradient=lambda dy, input: mul(dy, conj_of(_sinc_slope(input))))
def sinc(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x), and 1 where x is 0."""
    angle = input * math.pi
    return where(input == 0, 1, sin(angle) / angle)


_DEGREE = math.pi / 180
_RADIAN = 180 / math.pi


@elementwise(torch.deg2rad, gradient=lambda dy: mul(dy, _DEGREE), linear="0", passes=INCREASING)
def deg2rad(input: Tensor) -> Tensor:
    """Degrees as radians."""
    return input * _DEGREE


@elementwise(torch.rad2deg, gradient=lambda dy: mul(dy, _RADIAN), linear="0", passes=INCREASING)
def rad2deg(input: Tensor) -> Tensor:
    """Radians as degrees."""
    return input * _RADIAN


# Special functions.

erf = _smooth(torch.erf, lambda x: exp(neg(x * x)) * (2 / math.sqrt(math.pi)), INCREASING)
erfc = _smooth(torch.erfc, lambda x: exp(neg(x * x)) * (-2 / math.sqrt(math.pi)))
erfinv = _smooth(torch.erfinv, lambda y: exp(y * y) * (math.sqrt(math.pi) / 2))


def _digamma_slope(x: Tensor) -> Tensor:
    return polygamma(1, x)


digamma = _smooth(torch.digamma, _digamma_slope)
lgamma = _smooth(torch.lgamma, digamma)


def _polygamma_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor, n: int) -> tuple[Tensor]:
    return (mul(dy, _polygamma(x, n + 1)),)


_polygamma: Entry = unary(Elementwise("polygamma", kernels.polygamma, _polygamma_vjp))


@register_elementwise
def polygamma(n: int, input: Tensor) -> Tensor:
    """The derivative of order `n` of digamma; the method is `x.polygamma(n)`."""
    if isinstance(n, Tensor):
        n, input = input, n
    return _polygamma(input, n)


def _logit_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor, eps: float | None) -> tuple[Tensor]:
    low, high, outside = (0.0, 1.0, math.nan) if eps is None else (eps, 1.0 - eps, 0.0)
    inside = logical_and(ge(x, low), le(x, high))
    return (mul(dy, where(inside, reciprocal(x * (1.0 - x)), outside)),)


_logit: Entry = unary(Elementwise("logit", torch.logit, _logit_vjp))


@register_elementwise
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), with x clamped to [eps, 1 - eps] when `eps` is given."""
    return _logit(input, eps)


# Rounding and signs.

floor = _flat(torch.floor)
ceil = _flat(torch.ceil)
trunc = _flat(torch.trunc)
sign = _flat(torch.sign)
register_elementwise(trunc, "fix")
_round: Entry = unary(Elementwise("round", kernels.round, zeros_vjp, saves=()))


@register_elementwise
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest integer, or the nearest value with `decimals` decimals; halves go to even."""
    return _round(input, decimals) if decimals else _round(input)


def _same_vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta) -> tuple[Tensor]:
    return (dy,)


frac: Function = register_elementwise(unary(Elementwise("frac", torch.frac, _same_vjp, saves=())))


def _abs_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor) -> tuple[Tensor]:
    return (mul(dy, sgn(x)),)


def _sgn_vjp(needs: Needs, dy: Tensor, y: Tensor, x: Tensor) -> tuple[Tensor]:
    if not dy.meta.dtype.is_complex:
        return zeros_vjp(needs, dy, dy.meta, x.meta)
    # Of x / |x|: the part of dy along y has no effect.
    across = dy - y * cast(real(dy * conj(y)), dy.dtype)
    return (or_zero(x, div(across, abs(x))),)


abs: Function = register_elementwise(unary(Elementwise("abs", torch.abs, _abs_vjp)))
register_elementwise(abs, "absolute")
sgn: Function = register_elementwise(
    unary(Elementwise("sgn", torch.sgn, _sgn_vjp, saves_output=True))
)


def _nan_to_num_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor, *attrs: object) -> tuple[Tensor]:
    return (mul(dy, isfinite(x)),)


_nan_to_num: Entry = unary(Elementwise("nan_to_num", kernels.nan_to_num, _nan_to_num_vjp))


@register_elementwise
def nan_to_num(
    input: Tensor,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """`input` with nan as `nan` (0), and infinities as the given or the dtype's extreme numbers."""
    return _nan_to_num(input, *map(exact, (nan, posinf, neginf)))


# Predicates.

isnan = _predicate(torch.isnan)
isinf = _predicate(torch.isinf)
isposinf = _predicate(torch.isposinf)
isneginf = _predicate(torch.isneginf)
isfinite = _predicate(torch.isfinite)
signbit = _predicate(torch.signbit)
logical_not = _predicate(torch.logical_not)
bitwise_not = _predicate(torch.bitwise_not)

# Complex numbers.


def _conj_vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta) -> tuple[Tensor]:
    return (conj(dy),)


def _real_vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta) -> tuple[Tensor]:
    return (cast(dy, x.dtype),)


def _imag_vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta) -> tuple[Tensor]:
    return (mul(cast(dy, x.dtype), 1j),)


def _angle_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor) -> tuple[Tensor]:
    if not x.meta.dtype.is_complex:
        return (constant_like(dy, 0),)
    turned = div(mul(x, 1j), cast(square(abs(x)), x.dtype))
    return (or_zero(x, mul(dy, turned)),)


_conj: Entry = unary(Elementwise("conj", torch.conj_physical, _conj_vjp, linear="0", saves=()))
_real: Entry = unary(Elementwise("real", kernels.real, _real_vjp, linear="0", saves=()))
_imag: Entry = unary(Elementwise("imag", kernels.imag, _imag_vjp, linear="0", saves=()))
angle: Function = register_elementwise(unary(Elementwise("angle", torch.angle, _angle_vjp)))


@register_elementwise
def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate; a real tensor itself."""
    return _conj(input) if input.meta.dtype.is_complex else input


register_elementwise(conj_physical, "resolve_conj")


def _read_only(name: str, function: Callable[[Tensor], Tensor], of_one: Any) -> FunctionStep:
    def scatter(x: Tensor, value: Tensor) -> Tensor:
        raise read_only(name)

    return FunctionStep(name, function, scatter, of_one)


_CONJ = FunctionStep("conj", _conj, lambda x, value: _conj(value), torch.conj_physical)
_REAL = _read_only("real", _real, kernels.real)
_IMAG = _read_only("imag", _imag, kernels.imag)


@register_elementwise
def conj(input: Tensor) -> Tensor:
    """The complex conjugate, as a view; a real tensor itself."""
    return link(_conj(input), input, _CONJ) if input.meta.dtype.is_complex else input


@register_function
def real(input: Tensor) -> Tensor:
    """The real part, which cannot be written in place; a real tensor itself."""
    return link(_real(input), input, _REAL) if input.meta.dtype.is_complex else input


@register_function
def imag(input: Tensor) -> Tensor:
    """The imaginary part, which cannot be written in place."""
    return link(_imag(input), input, _IMAG)
