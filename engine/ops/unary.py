"""Elementwise functions of one tensor: a row gives the kernel and the derivative."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...kernels import pointwise as kernels
from ..dispatch import unary
from ..meta import Meta
from ..names import enter, named, names
from ..op import Kernel
from ..signature import Signature
from ..tensor import Tensor
from ..views import FunctionStep, link, read_only
from .arithmetic import div, mul, neg, zeros_vjp
from .cast import cast
from .pointwise import INCREASING, Elementwise, conj_of, exact
from .power import square
from .reduce import constant_like

Needs = Sequence[object]
Slope = Callable[[Tensor], Tensor]  # the derivative at x, or as a function of y


def _smooth(
    name: str, kernel: Kernel, slope: Slope, passes: tuple[Signature, ...] = ()
) -> Callable[..., Any]:
    """A function with its derivative as a function of x."""

    def vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor) -> tuple[Tensor]:
        return (mul(dy, conj_of(slope(x))),)

    return enter(name, unary(Elementwise(name, kernel, vjp, passes=passes)))


def _smooth_by_y(
    name: str, kernel: Kernel, slope: Slope, passes: tuple[Signature, ...] = ()
) -> Callable[..., Any]:
    """A function with its derivative as a function of y: x need not be kept."""

    def vjp(needs: Needs, dy: Tensor, y: Tensor, x: Meta) -> tuple[Tensor]:
        return (mul(dy, conj_of(slope(y))),)

    op = Elementwise(name, kernel, vjp, passes=passes, saves=(), saves_output=True)
    return enter(name, unary(op))


def _flat(name: str, kernel: Kernel, passes: tuple[Signature, ...] = INCREASING) -> Any:
    """A step function: its derivative is zero."""
    return enter(name, unary(Elementwise(name, kernel, zeros_vjp, passes=passes, saves=())))


def _scaling(name: str, kernel: Kernel, factor: float) -> Callable[..., Any]:
    def vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta) -> tuple[Tensor]:
        return (mul(dy, factor),)

    op = Elementwise(name, kernel, vjp, linear="0", passes=INCREASING, saves=())
    return enter(name, unary(op))


def _predicate(name: str, kernel: Kernel) -> Callable[..., Any]:
    return enter(name, unary(Elementwise(name, kernel)))


def _alias(name: str, function: Callable[..., Any]) -> None:
    enter(name, function)


# Exponentials, logarithms, roots.

exp = _smooth_by_y("exp", torch.exp, lambda y: y, INCREASING)
exp2 = _smooth_by_y("exp2", torch.exp2, lambda y: y * math.log(2), INCREASING)
expm1 = _smooth_by_y("expm1", torch.expm1, lambda y: y + 1, INCREASING)
sqrt = _smooth_by_y("sqrt", torch.sqrt, lambda y: 0.5 / y)
rsqrt = _smooth_by_y("rsqrt", torch.rsqrt, lambda y: -0.5 * (y * y * y))
reciprocal = _smooth_by_y("reciprocal", torch.reciprocal, lambda y: neg(y * y))
log2 = _smooth("log2", torch.log2, lambda x: 1 / (x * math.log(2)))
log10 = _smooth("log10", torch.log10, lambda x: 1 / (x * math.log(10)))
log1p = _smooth("log1p", torch.log1p, lambda x: 1 / (x + 1))


def _log_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor) -> tuple[Tensor]:
    return (div(dy, conj_of(x)),)


log = enter("log", unary(Elementwise("log", torch.log, _log_vjp)))

# Trigonometric and hyperbolic functions.


def _cos_slope(x: Tensor) -> Tensor:
    return neg(names.sin(x))  # type: ignore[no-any-return]


cos = _smooth("cos", torch.cos, _cos_slope)
sin = _smooth("sin", torch.sin, cos)
tan = _smooth_by_y("tan", torch.tan, lambda y: y * y + 1)
asin = _smooth("asin", torch.asin, lambda x: rsqrt(1 - x * x))
acos = _smooth("acos", torch.acos, lambda x: neg(rsqrt(1 - x * x)))
atan = _smooth("atan", torch.atan, lambda x: 1 / (x * x + 1), INCREASING)


def _cosh_slope(x: Tensor) -> Tensor:
    return names.sinh(x)  # type: ignore[no-any-return]


cosh = _smooth("cosh", torch.cosh, _cosh_slope)
sinh = _smooth("sinh", torch.sinh, cosh, INCREASING)
asinh = _smooth("asinh", torch.asinh, lambda x: rsqrt(x * x + 1), INCREASING)
acosh = _smooth("acosh", torch.acosh, lambda x: rsqrt(x - 1) * rsqrt(x + 1))
atanh = _smooth("atanh", torch.atanh, lambda x: 1 / (1 - x * x))
for _short in ("sin", "cos", "tan", "sinh", "cosh", "tanh"):
    _full = "arc" + _short
    _own = {"sin": asin, "cos": acos, "tan": atan, "sinh": asinh, "cosh": acosh, "tanh": atanh}
    _alias(_full, _own[_short])


def _sinc_slope(x: Tensor) -> Tensor:
    angle = x * math.pi
    slope = (angle * cos(angle) - sin(angle)) / (x * angle)
    return names.where(names.eq(x, 0), 0.0, slope)  # type: ignore[no-any-return]


sinc = _smooth("sinc", torch.sinc, _sinc_slope)
deg2rad = _scaling("deg2rad", torch.deg2rad, math.pi / 180)
rad2deg = _scaling("rad2deg", torch.rad2deg, 180 / math.pi)

# Special functions.

erf = _smooth("erf", torch.erf, lambda x: exp(neg(x * x)) * (2 / math.sqrt(math.pi)), INCREASING)
erfc = _smooth("erfc", torch.erfc, lambda x: exp(neg(x * x)) * (-2 / math.sqrt(math.pi)))
erfinv = _smooth_by_y("erfinv", torch.erfinv, lambda y: exp(y * y) * (math.sqrt(math.pi) / 2))
digamma = _smooth("digamma", torch.digamma, lambda x: names.polygamma(1, x))
lgamma = _smooth("lgamma", torch.lgamma, digamma)


def _polygamma_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor, n: int) -> tuple[Tensor]:
    return (mul(dy, _polygamma(x, n + 1)),)


_polygamma = unary(Elementwise("polygamma", kernels.polygamma, _polygamma_vjp))


@named
def polygamma(n: int, input: Tensor) -> Tensor:
    """The derivative of order `n` of digamma."""
    return _polygamma(input, n)  # type: ignore[no-any-return]


def _logit_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor, eps: float | None) -> tuple[Tensor]:
    low, high, outside = (0.0, 1.0, math.nan) if eps is None else (eps, 1.0 - eps, 0.0)
    inside = names.logical_and(names.ge(x, low), names.le(x, high))
    return (mul(dy, names.where(inside, reciprocal(x * (1.0 - x)), outside)),)


_logit = unary(Elementwise("logit", torch.logit, _logit_vjp))


@named
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), with x clamped to [eps, 1 - eps] when `eps` is given."""
    return _logit(input, eps)  # type: ignore[no-any-return]


# Rounding and signs.

floor = _flat("floor", torch.floor)
ceil = _flat("ceil", torch.ceil)
trunc = _flat("trunc", torch.trunc)
sign = _flat("sign", torch.sign)
_alias("fix", trunc)
_round = unary(
    Elementwise(
        "round",
        kernels.round,
        zeros_vjp,
        saves=(),
    )
)


@named
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest integer, or the nearest value with `decimals` decimals; halves go to even."""
    return _round(input, decimals) if decimals else _round(input)  # type: ignore[no-any-return]


def _same_vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta) -> tuple[Tensor]:
    return (dy,)


frac = enter("frac", unary(Elementwise("frac", torch.frac, _same_vjp, saves=())))


def _abs_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor) -> tuple[Tensor]:
    return (mul(dy, sgn(x)),)


def _sgn_vjp(needs: Needs, dy: Tensor, y: Tensor, x: Tensor) -> tuple[Tensor]:
    if not dy.meta.dtype.is_complex:
        return zeros_vjp(needs, dy, dy.meta, x.meta)
    # Of x / |x|: the part of dy along y has no effect.
    across = dy - y * cast(names.real(dy * conj(y)), dy.dtype)
    return (names.where(names.eq(x, 0), 0.0, div(across, names.abs(x))),)


abs = enter("abs", unary(Elementwise("abs", torch.abs, _abs_vjp)))
_alias("absolute", abs)
sgn = enter("sgn", unary(Elementwise("sgn", torch.sgn, _sgn_vjp, saves_output=True)))


def _nan_to_num_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor, *attrs: object) -> tuple[Tensor]:
    return (mul(dy, isfinite(x)),)


_nan_to_num = unary(
    Elementwise(
        "nan_to_num",
        kernels.nan_to_num,
        _nan_to_num_vjp,
    )
)


@named
def nan_to_num(
    input: Tensor,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """`input` with nan as `nan` (0), and infinities as the given or the dtype's extreme numbers."""
    return _nan_to_num(input, *map(exact, (nan, posinf, neginf)))  # type: ignore[no-any-return]


# Predicates.

isnan = _predicate("isnan", torch.isnan)
isinf = _predicate("isinf", torch.isinf)
isposinf = _predicate("isposinf", torch.isposinf)
isneginf = _predicate("isneginf", torch.isneginf)
isfinite = _predicate("isfinite", torch.isfinite)
signbit = _predicate("signbit", torch.signbit)
logical_not = _predicate("logical_not", torch.logical_not)
bitwise_not = _predicate("bitwise_not", torch.bitwise_not)

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
    turned = div(mul(x, 1j), cast(square(names.abs(x)), x.dtype))
    return (names.where(names.eq(x, 0), 0.0, mul(dy, turned)),)


_conj = unary(Elementwise("conj", torch.conj_physical, _conj_vjp, linear="0", saves=()))
_real = unary(Elementwise("real", kernels.real, _real_vjp, linear="0", saves=()))
_imag = unary(Elementwise("imag", kernels.imag, _imag_vjp, linear="0", saves=()))
angle = enter("angle", unary(Elementwise("angle", torch.angle, _angle_vjp)))


@named
def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate; a real tensor itself."""
    return _conj(input) if input.meta.dtype.is_complex else input


_alias("resolve_conj", conj_physical)


def _read_only(name: str, function: Callable[[Tensor], Tensor], of_one: Any) -> FunctionStep:
    def scatter(x: Tensor, value: Tensor) -> Tensor:
        raise read_only(name)

    return FunctionStep(name, function, scatter, of_one)


_CONJ = FunctionStep("conj", _conj, lambda x, value: _conj(value), torch.conj_physical)
_REAL = _read_only("real", _real, kernels.real)
_IMAG = _read_only("imag", _imag, kernels.imag)


@named
def conj(input: Tensor) -> Tensor:
    """The complex conjugate, as a view; a real tensor itself."""
    return link(_conj(input), input, _CONJ) if input.meta.dtype.is_complex else input


@named
def real(input: Tensor) -> Tensor:
    """The real part, which cannot be written in place; a real tensor itself."""
    return link(_real(input), input, _REAL) if input.meta.dtype.is_complex else input


@named
def imag(input: Tensor) -> Tensor:
    """The imaginary part, which cannot be written in place."""
    return link(_imag(input), input, _IMAG)
