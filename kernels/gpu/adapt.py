"""Adapt: torch's pointwise functions, and what each asks of a kernel.

For the arguments of the torch function an entry gives the function of the kernel (see
`expression.TAKES`) and its arguments: tensors and numbers. No function: torch does it itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import pointwise as own
from ..pointwise import aten
from .symbols import kind_of

Adapted = tuple[str, Sequence[Any]]
Adapt = Callable[..., Adapted]

_nn: Any = torch._C._nn
_NOTHING: Adapted = ("", ())


def plainly(function: str) -> Adapt:
    """The kernel's function takes what the torch function does."""
    return lambda *args: (function, args)


def _real(function: str, whole: str = "copy") -> Adapt:
    """Another function where the tensor is of integers."""
    return lambda x: (function if x.dtype.is_floating_point else whole, (x,))


def _bitwise_not(x: Tensor) -> Adapted:
    return "logical_not" if x.dtype is torch.bool else "bitwise_not", (x,)


_EXPONENTS = {
    0.5: "sqrt", 2: "square", 3: "cube", -0.5: "rsqrt", -1: "reciprocal", -2: "inverse_square",
}  # fmt: skip


def _pow(a: Any, b: Any) -> Adapted:
    """Some exponents have functions of their own, as in torch."""
    special = _EXPONENTS.get(b) if kind_of(b) in (int, float) else None
    return ("pow", (a, b)) if special is None else (special, (a,))


def _isclose(
    a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Adapted:
    if not a.dtype.is_floating_point:
        return _NOTHING
    return "isclose_nan" if equal_nan else "isclose_number", (a, b, rtol, atol)


def _logit(x: Tensor, eps: float | None = None) -> Adapted:
    return ("logit", (x,)) if eps is None else ("logit_within", (x, eps))


def _round(x: Tensor, decimals: int = 0) -> Adapted:
    if not x.dtype.is_floating_point:
        return "copy", (x,)
    if decimals == 0:
        return "round", (x,)
    scale = 10.0 ** abs(decimals)
    return ("round_scaled" if decimals > 0 else "round_coarse"), (x, scale)


def _nan_to_num(x: Tensor, nan: own.Exact, high: own.Exact, low: own.Exact) -> Adapted:
    if not x.dtype.is_floating_point:
        return "copy", (x,)
    limits = torch.finfo(x.dtype)
    numbers = [
        float(default if given[0] is None else given[0])
        for given, default in ((nan, 0.0), (high, limits.max), (low, limits.min))
    ]
    return "nan_to_num", (x, *numbers)


def _clamp(x: Tensor, low: Any, high: Any, *kinds: type) -> Adapted:
    if low is None:
        return "minimum", (x, high)
    return ("maximum", (x, low)) if high is None else ("clamp", (x, low, high))


def _norm_power(x: Tensor, ord: float) -> Adapted:
    if ord == 1:
        return "abs", (x,)
    if ord == 2:
        return "square", (x,)
    return "abs_pow", (x, ord)


def _norm_root(x: Tensor, ord: float) -> Adapted:
    return _pow(x, 1 / ord)


_PLAIN = """add sub mul div neg fmod remainder maximum minimum fmax fmin eq ne lt le gt ge
    bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift logical_and
    logical_or logical_xor logical_not isnan isinf isposinf isneginf isfinite signbit abs sign
    heaviside copysign where lerp addcmul addcdiv square reciprocal exp exp2 expm1 log log2 log10
    log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sinc deg2rad
    rad2deg angle erf erfc erfinv lgamma sigmoid relu atan2 hypot logaddexp logaddexp2 xlogy
    threshold hardshrink frac"""

TORCH_ADAPTED: dict[Any, Adapt] = {
    **{getattr(torch, name): plainly(name) for name in _PLAIN.split()},
    **{getattr(torch, name): _real(name) for name in "floor ceil trunc".split()},
    torch.rsub: plainly("rsub"),
    torch.sgn: plainly("sign"),
    torch.floor_divide: plainly("div_floor"),
    torch.clamp_min: plainly("maximum"),
    torch.clamp_max: plainly("minimum"),
    torch.clone: plainly("copy"),
    torch.conj_physical: plainly("copy"),
    torch.bitwise_not: _bitwise_not,
    torch.pow: _pow,
    torch.isclose: _isclose,
    torch.logit: _logit,
    torch.digamma: lambda x: _NOTHING,
    **{
        getattr(_nn, name): plainly(name)
        for name in """elu hardsigmoid hardswish leaky_relu log_sigmoid mish silu softplus
            softshrink""".split()
    },
    _nn.hardtanh: plainly("clamp"),
    **{
        aten(f"{name}_backward"): plainly(f"{name}_backward")
        for name in "sigmoid tanh silu mish hardswish hardsigmoid softplus".split()
    },
    aten("hardshrink_backward"): plainly("shrink_backward"),
    aten("softshrink_backward"): plainly("shrink_backward"),
    aten("hardtanh_backward"): plainly("clamp_open"),
}

# Functions of two tensors that take numbers as tensors.
_OF_TWO: dict[Any, str] = {
    torch.floor_divide: "div_floor",
    own.div_floor: "div_floor",
    own.div_trunc: "div_trunc",
    **{
        getattr(torch, name): name
        for name in """remainder fmod copysign logical_and logical_or logical_xor bitwise_and
            bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift""".split()
    },
}

OWN_ADAPTED: dict[Callable[..., Any], Adapt] = {
    **{
        getattr(own, name): plainly(name)
        for name in """number_div div_floor div_trunc softsign tanhshrink log_sigmoid_backward
            relu_backward elu_backward leaky_relu_backward squared_error absolute_error huber_error
            bit_cross_entropy bit_cross_entropy_with_logits""".split()
    },
    **{own.number_first(torchs): plainly(name) for torchs, name in _OF_TWO.items()},
    **{own.number_last(torchs): plainly(name) for torchs, name in _OF_TWO.items()},
    own.rsub: lambda n, x: ("sub", (n, x)),
    own.positive: plainly("copy"),
    own.cast: lambda x, dtype: ("copy", (x,)),
    own.real: lambda x: _NOTHING,
    own.imag: lambda x: _NOTHING,
    own.polygamma: lambda x, n: _NOTHING,
    own.where_numbers: lambda condition, a, b: ("where", (condition, a[0], b[0])),
    own.where_first: lambda condition, x, number: ("where", (condition, number[0], x)),
    own.where_last: lambda condition, x, number: ("where", (condition, x, number[0])),
    own.masked_fill: lambda x, mask, number: ("where", (mask, number[0], x)),
    own.clamp: _clamp,
    own.nan_to_num: _nan_to_num,
    own.round: _round,
    own.norm_power: _norm_power,
    own.norm_root: _norm_root,
    own.threshold_backward: lambda dy, x, least, value: ("threshold_backward", (dy, x, least)),
    own.gelu: lambda x, how: ("gelu_tanh" if how == "tanh" else "gelu", (x,)),
    own.gelu_backward: lambda dy, x, how: (
        "gelu_tanh_backward" if how == "tanh" else "gelu_backward", (dy, x),
    ),
    own.smooth_error: lambda a, b, beta: (
        ("smooth_error", (a, b, beta)) if beta else ("absolute_error", (a, b))
    ),
    own.kl_divergence: lambda x, t, log: ("kl_divergence_log" if log else "kl_divergence", (x, t)),
}  # fmt: skip
