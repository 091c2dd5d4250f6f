"""Elementwise functions of one tensor. A row gives the kernel and the derivative."""

from __future__ import annotations

import math
from inspect import signature

import torch

from ...kernels import pointwise_ref as kernels
from ..dispatcher import unary
from ..meta import Meta
from ..names import register_function
from ..op import Gradients, Kernel, Needs
from ..out_tensors import give_to
from ..signature import Signature
from ..tensor import Tensor, tensor_ops
from ..views import FunctionStep, link
from .arithmetic import div, mul, neg
from .cast import cast
from .compare import ge, le, logical_and
from .elementwise import Function, derived, elementwise, same, torch_function, with_settings, zero
from .like import constant_like
from .pointwise import INCREASING, Elementwise, conj_of, exact, register_elementwise
from .where import or_zero, where


def _smooth(kernel: Kernel, slope: Function, passes: tuple[Signature, ...] = ()) -> Function:
    """A function of torch with its derivative as a function of x, or of y if so named."""

    def by_x(dy: Tensor, x: Tensor) -> Tensor:
        return mul(dy, conj_of(slope(x)))

    def by_y(dy: Tensor, y: Tensor) -> Tensor:
        return mul(dy, conj_of(slope(y)))

    gradient = by_y if list(signature(slope).parameters) == ["y"] else by_x
    return torch_function(kernel, gradient, passes=passes)


def _flat(kernel: Kernel) -> Function:
    """A step function of torch: its derivative is zero."""
    return torch_function(kernel, zero, passes=INCREASING)


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
log = torch_function(torch.log, lambda dy, x: div(dy, conj_of(x)))
square = torch_function(torch.square, lambda dy, x: mul(dy, mul(conj_of(x), 2)))

# Trigonometric and hyperbolic functions.

cos = _smooth(torch.cos, lambda x: -x.sin())
sin = _smooth(torch.sin, cos)
tan = _smooth(torch.tan, lambda y: y * y + 1)
asin = _smooth(torch.asin, lambda x: rsqrt(1 - x * x))
acos = _smooth(torch.acos, lambda x: neg(rsqrt(1 - x * x)))
atan = _smooth(torch.atan, lambda x: 1 / (x * x + 1), INCREASING)
cosh = _smooth(torch.cosh, lambda x: x.sinh())
sinh = _smooth(torch.sinh, cosh, INCREASING)
asinh = _smooth(torch.asinh, lambda x: rsqrt(x * x + 1), INCREASING)
acosh = _smooth(torch.acosh, lambda x: rsqrt(x - 1) * rsqrt(x + 1))
atanh = _smooth(torch.atanh, lambda x: 1 / (1 - x * x))


def _sinc_slope(x: Tensor) -> Tensor:
    angle = x * math.pi
    square_of_x = x * angle  # 0 for small numbers, too
    return or_zero(square_of_x, (angle * cos(angle) - sin(angle)) / square_of_x)


@elementwise(torch.sinc, out=True, gradient=lambda dy, input: mul(dy, conj_of(_sinc_slope(input))))
def sinc(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x), and 1 where x is 0."""
    angle = input * math.pi
    return where(input == 0, 1, sin(angle) / angle)


_DEGREE = math.pi / 180
_RADIAN = 180 / math.pi


@elementwise(
    torch.deg2rad, out=True, gradient=lambda dy: mul(dy, _DEGREE), linear="0", passes=INCREASING
)
def deg2rad(input: Tensor) -> Tensor:
    """Degrees as radians."""
    return input * _DEGREE


@elementwise(
    torch.rad2deg, out=True, gradient=lambda dy: mul(dy, _RADIAN), linear="0", passes=INCREASING
)
def rad2deg(input: Tensor) -> Tensor:
    """Radians as degrees."""
    return input * _RADIAN


# Special functions.

erf = _smooth(torch.erf, lambda x: exp(neg(x * x)) * (2 / math.sqrt(math.pi)), INCREASING)
erfc = _smooth(torch.erfc, lambda x: exp(neg(x * x)) * (-2 / math.sqrt(math.pi)))
erfinv = _smooth(torch.erfinv, lambda y: exp(y * y) * (math.sqrt(math.pi) / 2))
digamma = _smooth(torch.digamma, lambda x: x.polygamma(1))
lgamma = _smooth(torch.lgamma, digamma)


_polygamma = with_settings(
    "polygamma", kernels.polygamma, "n", lambda dy, x, n: mul(dy, x.polygamma(n + 1))
)


@register_elementwise
def polygamma(n: int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The derivative of order `n` of digamma; the method is `x.polygamma(n)`."""
    if out is not None:
        return give_to(out, polygamma(n, input))
    if isinstance(n, Tensor):
        n, input = input, n
    return _polygamma(input, n)


def _logit_gradient(dy: Tensor, x: Tensor, eps: float | None) -> Tensor:
    low, high, outside = (0.0, 1.0, math.nan) if eps is None else (eps, 1.0 - eps, 0.0)
    inside = logical_and(ge(x, low), le(x, high))
    return mul(dy, where(inside, reciprocal(x * (1.0 - x)), outside))


_logit = with_settings("logit", torch.logit, "eps", _logit_gradient)


@register_elementwise
def logit(input: Tensor, eps: float | None = None, *, out: Tensor | None = None) -> Tensor:
    """log(x / (1 - x)), with x clamped to [eps, 1 - eps] when `eps` is given."""
    if out is not None:
        return give_to(out, logit(input, eps))
    return _logit(input, eps)


# Rounding and signs.

floor = _flat(torch.floor)
ceil = _flat(torch.ceil)
trunc = _flat(torch.trunc)
sign = _flat(torch.sign)


_round = with_settings("round", kernels.round, "decimals", zero)


@register_elementwise
def round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """The nearest integer, or the nearest value with `decimals` decimals; halves go to even."""
    if out is not None:
        return give_to(out, round(input, decimals=decimals))
    return _round(input, decimals)


def _sgn_gradient(dy: Tensor, y: Tensor, x: Tensor) -> Tensor:
    if not dy.meta.dtype.is_complex:
        return constant_like(dy, 0)
    # Of x / |x|: the part of dy along y has no effect.
    across = dy - y * cast(real(dy * conj(y)), dy.dtype)
    return or_zero(x, div(across, abs(x)))


frac = torch_function(torch.frac, same)
sgn = torch_function(torch.sgn, _sgn_gradient)
abs = torch_function(torch.abs, lambda dy, x: mul(dy, sgn(x)))


_nan_to_num = with_settings(
    "nan_to_num", kernels.nan_to_num, "nan posinf neginf", lambda dy, x: mul(dy, x.isfinite())
)


@register_elementwise
def nan_to_num(
    input: Tensor,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """`input` with nan as `nan` (0), and infinities as the given or the dtype's extreme numbers."""
    if out is not None:
        return give_to(out, nan_to_num(input, nan, posinf, neginf))
    return _nan_to_num(input, exact(nan), exact(posinf), exact(neginf))


# Predicates, which have no derivative.

isnan = torch_function(torch.isnan, out=False)
isinf = torch_function(torch.isinf, out=False)
isposinf = torch_function(torch.isposinf)
isneginf = torch_function(torch.isneginf)
isfinite = torch_function(torch.isfinite, out=False)
signbit = torch_function(torch.signbit)
logical_not = torch_function(torch.logical_not)
bitwise_not = torch_function(torch.bitwise_not)

# Complex numbers.


def _angle_gradient(dy: Tensor, x: Tensor) -> Tensor:
    if not x.meta.dtype.is_complex:
        return constant_like(dy, 0)
    turned = div(mul(x, 1j), cast(square(abs(x)), x.dtype))
    return or_zero(x, mul(dy, turned))


def _real_vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta) -> Gradients:
    return (cast(dy, x.dtype),)


def _imag_vjp(needs: Needs, dy: Tensor, y: Meta, x: Meta) -> Gradients:
    return (mul(cast(dy, x.dtype), 1j),)


angle = torch_function(torch.angle, _angle_gradient)
_conj = unary(derived("conj", torch.conj_physical, (lambda dy: dy.conj(),), ("x",), linear="0"))
_real = unary(Elementwise("real", kernels.real, _real_vjp, linear="0", saves=()))
_imag = unary(Elementwise("imag", kernels.imag, _imag_vjp, linear="0", saves=()))


@register_elementwise
def conj_physical(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The complex conjugate; a real tensor itself."""
    if out is not None:
        return give_to(out, conj_physical(input))
    return _conj(input) if input.meta.dtype.is_complex else input


@register_function
def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself, since conjugation is never lazy."""
    return input


@register_function
def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself, since negation is never lazy."""
    return input


_CONJ = FunctionStep("conj", _conj, lambda x, value: _conj(value), torch.conj_physical)
_REAL = FunctionStep(
    "real", _real, lambda x, value: tensor_ops.complex(value, _imag(x)), kernels.real
)
_IMAG = FunctionStep(
    "imag", _imag, lambda x, value: tensor_ops.complex(_real(x), value), kernels.imag
)


@register_elementwise
def conj(input: Tensor) -> Tensor:
    """The complex conjugate, as a view; a real tensor itself."""
    return link(_conj(input), input, _CONJ) if input.meta.dtype.is_complex else input


@register_function
def real(input: Tensor) -> Tensor:
    """The real part, as a view; a real tensor itself."""
    return link(_real(input), input, _REAL) if input.meta.dtype.is_complex else input


@register_function
def imag(input: Tensor) -> Tensor:
    """The imaginary part, as a view."""
    return link(_imag(input), input, _IMAG)
