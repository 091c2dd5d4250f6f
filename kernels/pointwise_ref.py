"""Elementwise functions of several torch calls, and torch's backward functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

from .scalar_expression import UNSUPPORTED, Adapt, Adapted, adapt_of, declare, expression, on_triton

Kernel: TypeAlias = Callable[..., torch.Tensor]
Operand: TypeAlias = torch.Tensor | complex
Exact: TypeAlias = tuple[complex, str]  # a number as an attribute: its value first


def aten(name: str) -> Kernel:
    """The C function of a torch op for which torch has no Python function.

    Its overload is fixed here, which saves the choice at each call.
    """
    kernel: Kernel = getattr(torch.ops.aten, name).default._op
    _ATEN[kernel] = name
    return kernel


def aten_name(kernel: Kernel) -> str:
    """The name by which `aten` gave a function; "" if it did not."""
    return _ATEN.get(kernel, "")


_ATEN: dict[Kernel, str] = {}


@on_triton(lambda x: UNSUPPORTED)
def real(x: torch.Tensor) -> torch.Tensor:
    """The real part, in memory of its own."""
    return torch.real(x).clone(memory_format=torch.contiguous_format)


@on_triton(lambda x: UNSUPPORTED)
def imag(x: torch.Tensor) -> torch.Tensor:
    """The imaginary part, in memory of its own."""
    return torch.imag(x).clone(memory_format=torch.contiguous_format)


@on_triton("copy")
def positive(x: torch.Tensor) -> torch.Tensor:
    """A copy; bools are refused."""
    return torch.positive(x).clone()


@on_triton(lambda x, dtype: ("copy", (x,)))
def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The values in another dtype; of complex ones the real part."""
    if x.dtype.is_complex and not dtype.is_complex and dtype is not torch.bool:
        return torch.real(x).to(dtype, copy=True)  # not a view of the real parts
    return x.to(dtype)


# A number and a tensor.


def _number_like(n: complex, x: torch.Tensor) -> torch.Tensor:
    """The number as a 0-d tensor that promotes as the number does."""
    return torch.full((), n, dtype=torch.result_type(x, n), device=x.device)


def number_first(kernel: Kernel) -> Kernel:
    """A function of two tensors for a number and a tensor."""
    return _as_for(kernel, lambda n, x: kernel(_number_like(n, x), x), "number_first")


def number_last(kernel: Kernel) -> Kernel:
    """A function of two tensors for a tensor and a number."""
    return _as_for(kernel, lambda x, n: kernel(x, _number_like(n, x)), "number_last")


def _as_for(kernel: Kernel, call: Kernel, kind: str) -> Kernel:
    """Triton takes numbers and tensors alike."""

    def adapt(*args: Operand) -> Adapted:
        adapt_kernel = adapt_of(kernel)
        return UNSUPPORTED if adapt_kernel is None else adapt_kernel(*args)

    call.__name__ = f"{kernel.__name__}_{kind}"
    declare(call, adapt)
    return call


@on_triton(lambda n, x: ("sub", (n, x)))
def rsub(n: complex, x: torch.Tensor) -> torch.Tensor:
    """n - x"""
    return torch.rsub(x, n)


@on_triton("number_div")
def number_div(n: complex, x: torch.Tensor) -> torch.Tensor:
    """n / x, as torch does it: times the reciprocal."""
    return torch.mul(torch.reciprocal(x), n)


@on_triton("div_floor")
def div_floor(a: torch.Tensor, b: torch.Tensor | float) -> torch.Tensor:
    """a / b rounded down."""
    return torch.div(a, b, rounding_mode="floor")


@on_triton("div_trunc")
def div_trunc(a: torch.Tensor, b: torch.Tensor | float) -> torch.Tensor:
    """a / b rounded towards 0."""
    return torch.div(a, b, rounding_mode="trunc")


# Choices, and numbers alone.


def filled(x: torch.Tensor, shape: Sequence[int], value: complex) -> torch.Tensor:
    """A tensor of a shape with one number everywhere, of the dtype of x."""
    return x.new_full(shape, value)


@on_triton(lambda condition, a, b: ("where", (condition, a[0], b[0])))
def where_numbers(condition: torch.Tensor, a: Exact, b: Exact) -> torch.Tensor:
    """One number where the condition holds, the other elsewhere."""
    return torch.where(condition, a[0], b[0])


@on_triton(lambda condition, x, number: ("where", (condition, number[0], x)))
def where_first(condition: torch.Tensor, x: torch.Tensor, number: Exact) -> torch.Tensor:
    """The number where the condition holds."""
    return torch.where(condition, number[0], x)


@on_triton(lambda condition, x, number: ("where", (condition, x, number[0])))
def where_last(condition: torch.Tensor, x: torch.Tensor, number: Exact) -> torch.Tensor:
    """The number where the condition does not hold."""
    return torch.where(condition, x, number[0])


@on_triton(lambda x, mask, number: ("where", (mask, number[0], x)))
def masked_fill(x: torch.Tensor, mask: torch.Tensor, number: Exact) -> torch.Tensor:
    """The number where the mask is set; the dtype is that of x."""
    return torch.masked_fill(x, mask, number[0])


Bound: TypeAlias = float | None


def _clamp_on_triton(x: torch.Tensor, low: Bound, high: Bound, *kinds: type) -> Adapted:
    if low is None:
        return "minimum", (x, high)
    return ("maximum", (x, low)) if high is None else ("clamp", (x, low, high))


@on_triton(_clamp_on_triton)
def clamp(x: torch.Tensor, low: Bound, high: Bound, *kinds: type) -> torch.Tensor:
    """x within [low, high], of which one may be None; `kinds` only tell calls apart."""
    return torch.clamp(x, low, high)


Default: TypeAlias = tuple[float | None, str]  # an `Exact`, or None for what torch takes


def _nan_to_num_on_triton(x: torch.Tensor, nan: Default, high: Default, low: Default) -> Adapted:
    if not x.dtype.is_floating_point:
        return "copy", (x,)
    limits = torch.finfo(x.dtype)
    numbers = [
        float(default if given[0] is None else given[0])
        for given, default in ((nan, 0.0), (high, limits.max), (low, limits.min))
    ]
    return "nan_to_num", (x, *numbers)


@on_triton(_nan_to_num_on_triton)
def nan_to_num(x: torch.Tensor, nan: Default, high: Default, low: Default) -> torch.Tensor:
    """x with numbers in place of nan and infinities."""
    return torch.nan_to_num(x, nan[0], high[0], low[0])


def _round_on_triton(x: torch.Tensor, decimals: int = 0) -> Adapted:
    if not x.dtype.is_floating_point:
        return "copy", (x,)
    if decimals == 0:
        return "round", (x,)
    return "round_scaled" if decimals > 0 else "round_coarse", (x, 10.0 ** abs(decimals))


@on_triton(_round_on_triton)
def round(x: torch.Tensor, decimals: int = 0) -> torch.Tensor:
    """The nearest value with this many decimals."""
    return torch.round(x, decimals=decimals) if decimals else torch.round(x)


@on_triton(lambda x, n: UNSUPPORTED)
def polygamma(x: torch.Tensor, n: int) -> torch.Tensor:
    """The derivative of order n of digamma."""
    return torch.polygamma(n, x)


_POWERS = {
    0.5: "sqrt", 2: "square", 3: "cube", -0.5: "rsqrt", -1: "reciprocal", -2: "inverse_square",
}  # fmt: skip


def _pow_on_triton(a: Operand, b: Operand) -> Adapted:
    """Some exponents have functions of their own, as in torch."""
    special = _POWERS.get(b) if isinstance(b, (int, float)) else None
    return ("pow", (a, b)) if special is None else (special, (a,))


def _norm_power_on_triton(x: torch.Tensor, ord: float) -> Adapted:
    if ord == 1:
        return "abs", (x,)
    return ("square", (x,)) if ord == 2 else ("abs_pow", (x, ord))


@on_triton(_norm_power_on_triton)
def norm_power(x: torch.Tensor, ord: float) -> torch.Tensor:
    """|x| ** ord"""
    return torch.pow(torch.abs(x), ord)


@on_triton(lambda x, ord: _pow_on_triton(x, 1 / ord))
def norm_root(x: torch.Tensor, ord: float) -> torch.Tensor:
    """x ** (1 / ord)"""
    return torch.sqrt(x) if ord == 2 else torch.pow(x, 1 / ord)


# Functions of torch whose Triton function has another name, or depends on the arguments.


def _unless_whole(function: str) -> Adapt:
    """Numbers that are whole stay as they are."""
    return lambda x: (function if x.dtype.is_floating_point else "copy", (x,))


def _isclose_on_triton(
    a: torch.Tensor,
    b: torch.Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Adapted:
    if not a.dtype.is_floating_point:
        return UNSUPPORTED
    return "isclose_nan" if equal_nan else "isclose_number", (a, b, rtol, atol)


for _name in ("floor", "ceil", "trunc"):
    declare(getattr(torch, _name), _unless_whole(_name))
declare(torch.sgn, "sign")
declare(torch.floor_divide, "div_floor")
declare(torch.clamp_min, "maximum")
declare(torch.clamp_max, "minimum")
declare(torch.clone, "copy")
declare(torch.conj_physical, lambda z: ("complex_conj" if z.dtype.is_complex else "copy", (z,)))
declare(
    torch.bitwise_not, lambda x: (f"{'logical' if x.dtype is torch.bool else 'bitwise'}_not", (x,))
)
declare(torch.pow, _pow_on_triton)
declare(torch.isclose, _isclose_on_triton)
declare(torch.digamma, lambda x: UNSUPPORTED)


@expression(name="logit")
def _logit(x: torch.Tensor) -> torch.Tensor:
    return torch.log(x / (1 - x))


@expression(name="logit_within")
def _logit_within(x: torch.Tensor, eps: float) -> torch.Tensor:
    inside = torch.clamp_max(torch.clamp_min(x, eps), 1 - eps)
    return torch.log(inside / (1 - inside))


declare(
    torch.logit,
    lambda x, eps=None: ("logit", (x,)) if eps is None else ("logit_within", (x, eps)),
)


# Activations and their gradients, of which torch has the functions.

_threshold_backward = aten("threshold_backward")
_gelu_backward = aten("gelu_backward")
_gelu: Kernel = torch._C._nn.gelu
_elu_backward = aten("elu_backward")
_leaky_backward = aten("leaky_relu_backward")


def relu_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """dy where y > 0."""
    return _threshold_backward(dy, y, 0)


def threshold_backward(
    dy: torch.Tensor, x: torch.Tensor, threshold: float, value: float
) -> torch.Tensor:
    """dy where x > threshold."""
    return _threshold_backward(dy, x, threshold)


def elu_backward(
    dy: torch.Tensor, x: torch.Tensor, alpha: float, scale: float, inner: float
) -> torch.Tensor:
    """The gradient of elu by its input."""
    return _elu_backward(dy, alpha, scale, inner, False, x)


def leaky_relu_backward(dy: torch.Tensor, x: torch.Tensor, slope: float) -> torch.Tensor:
    """The gradient of leaky_relu by its input."""
    return _leaky_backward(dy, x, slope, False)


_SQRT_HALF = math.sqrt(0.5)
_TWICE = 2 * math.sqrt(2 / math.pi)  # the factor of z in 2 z, of the approximation by tanh(z)
_BASE = -_TWICE * math.log2(math.e)  # that of exp(-2 z) = 2 ** (...)
_BELL = 1 / math.sqrt(2 * math.pi)
_CUBIC = 0.044715
_HALF_SQUARE = -0.5 * math.log2(math.e)  # of x^2: exp(-x^2 / 2) = 2 ** (...)
_TAIL_P = 0.30814827318
_TAIL_1, _TAIL_2, _TAIL_3 = 0.12317966552634825, 0.11897058160419767, 0.13641817609339732
_TAIL_4, _TAIL_5, _TAIL_6 = 0.007667409352459487, 0.18916498048262004, -0.07540273015654804


@on_triton(lambda x, how: (_gelu_named(x, how), (x,)))
def gelu(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """gelu with approximate "none" or "tanh"."""
    return _gelu(x, approximate=approximate)


@on_triton(lambda dy, x, how: (_gelu_named(x, how) + "_backward", (dy, x)))
def gelu_backward(dy: torch.Tensor, x: torch.Tensor, approximate: str) -> torch.Tensor:
    """The gradient of gelu."""
    return _gelu_backward(dy, x, approximate=approximate)


def _gelu_named(x: torch.Tensor, approximate: str) -> str:
    if approximate == "tanh":
        return "gelu_tanh"
    return "gelu_half" if x.dtype in (torch.float16, torch.bfloat16) else "gelu"


@expression(name="gelu")
def _gelu_by_erf(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.erf(x * _SQRT_HALF))


@on_triton("fast_divide")
def fast_divide(a: torch.Tensor | float, b: torch.Tensor) -> torch.Tensor:
    """a / b, on a GPU within two units in the last place; 0 where b is greater than 2^126."""
    return a / b


@expression()
def normal_cdf(x: torch.Tensor, bell: torch.Tensor) -> torch.Tensor:
    """The distribution function of the normal distribution at x, where exp(-x^2 / 2) is `bell`.

    For results of 16 bits: the relative error is at most 4e-6, also in the tail, which is `bell`
    times a polynomial in t = 1 / (1 + p |x|), as in Abramowitz and Stegun 7.1.26, but with the
    coefficients of the least relative error. erf takes three times as many instructions.
    """
    t = fast_divide(1.0, 1 + torch.abs(x) * _TAIL_P)
    short = _TAIL_4 + t * (_TAIL_5 + t * _TAIL_6)
    series = t * (_TAIL_1 + t * (_TAIL_2 + t * (_TAIL_3 + t * short)))
    tail = series * bell
    return torch.where(x < 0, tail, 1 - tail)


@expression()
def gelu_half(x: torch.Tensor) -> torch.Tensor:
    """gelu of 16-bit tensors."""
    return x * normal_cdf(x, torch.exp2(x * x * _HALF_SQUARE))  # type: ignore[operator]


@expression()
def gelu_half_backward(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The gradient of gelu of 16-bit tensors."""
    bell = torch.exp2(x * x * _HALF_SQUARE)
    return dy * (normal_cdf(x, bell) + x * bell * _BELL)  # type: ignore[operator]


@expression()
def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    """The approximation of gelu, whose (1 + tanh(z)) / 2 is the sigmoid of 2 z."""
    return fast_divide(x, 1 + torch.exp2(x * (_BASE + x * x * (_BASE * _CUBIC))))


@expression(name="gelu_backward")
def _gelu_by_erf_backward(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    cumulated = 0.5 * (1 + torch.erf(x * _SQRT_HALF))
    return dy * (cumulated + x * torch.exp(-0.5 * x * x) * _BELL)


@expression()
def gelu_tanh_backward(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The gradient of the approximation, by e = exp(-2 z): the sigmoid of 2 z is 1 / (1 + e)."""
    square = x * x
    e = torch.exp2(torch.clamp_max(x * (_BASE + square * (_BASE * _CUBIC)), 127.0))
    share = fast_divide(1.0, 1 + e)
    slope = _TWICE + square * (3 * _TWICE * _CUBIC)
    return dy * (share + x * (slope * (share * (e * share))))
