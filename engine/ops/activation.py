"""Activations of neural networks: their gradients are ops of their own, one kernel each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...errors import OnefoldValueError
from ...kernels import pointwise as kernels
from ...kernels.pointwise import aten
from ..dispatch import binary, unary
from ..meta import Meta
from ..names import enter, named, names
from ..op import Kernel
from ..signature import Signature
from ..tensor import Tensor
from .arithmetic import mul, neg
from .pointwise import INCREASING, Elementwise
from .power import square
from .reduce import constant_like
from .unary import exp

Needs = Sequence[object]
_nn: Any = torch._C._nn


def _gradient_op(
    name: str, kernel: Kernel, second: Callable[..., Tensor] | None
) -> Callable[..., Any]:
    """The op (dy, at, *attrs) -> dy * slope(at), where `at` is x or y.

    `second` is the derivative of the slope; None: it is zero.
    """

    def vjp(
        needs: Needs, ddx: Tensor, dx: Meta, dy: Tensor, at: Tensor, *attrs: Any
    ) -> tuple[Any, Any]:
        for_dy = needs[0] and entry(ddx, at, *attrs)
        if not needs[1]:
            return for_dy, None
        if second is None:
            return for_dy, constant_like(at, 0)
        return for_dy, mul(mul(ddx, dy), second(at, *attrs))

    entry = binary(Elementwise(f"{name}_backward", kernel, vjp, linear="0"))
    return entry


def _by_x(
    name: str,
    kernel: Kernel,
    backward: Kernel,
    second: Callable[..., Tensor] | None = None,
    passes: tuple[Signature, ...] = (),
) -> Callable[..., Any]:
    """An activation whose gradient is computed from its input."""
    gradient = _gradient_op(name, backward, second)

    def vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor, *attrs: Any) -> tuple[Tensor]:
        return (gradient(dy, x, *attrs),)

    return unary(Elementwise(name, kernel, vjp, passes=passes))


def _by_y(
    name: str,
    kernel: Kernel,
    backward: Kernel,
    second: Callable[..., Tensor] | None = None,
    passes: tuple[Signature, ...] = (),
) -> Callable[..., Any]:
    """An activation whose gradient is computed from its output: the input need not be kept."""
    gradient = _gradient_op(name, backward, second)

    def vjp(needs: Needs, dy: Tensor, y: Tensor, x: Meta, *attrs: Any) -> tuple[Tensor]:
        return (gradient(dy, y, *attrs),)

    op = Elementwise(name, kernel, vjp, passes=passes, saves=(), saves_output=True)
    return unary(op)


# By the output.

relu = enter(
    "relu",
    _by_y("relu", torch.relu, kernels.relu_backward, None, INCREASING),
)
sigmoid = enter(
    "sigmoid",
    _by_y("sigmoid", torch.sigmoid, aten("sigmoid_backward"), lambda y: 1 - y * 2, INCREASING),
)
tanh = enter("tanh", _by_y("tanh", torch.tanh, aten("tanh_backward"), lambda y: y * -2, INCREASING))

# By the input.


def silu_second(x: Tensor) -> Tensor:
    """The second derivative of silu."""
    s = sigmoid(x)
    return s * (1 - s) * ((1 - s * 2) * x + 2)  # type: ignore[no-any-return]


def _mish_second(x: Tensor) -> Tensor:
    s, t = sigmoid(x), tanh(softplus(x))
    first = (1 - t * t) * s
    return 2 * first + x * ((1 - t * t) * (s * (1 - s) - 2 * t * s * s))  # type: ignore[no-any-return]


def _bell(x: Tensor) -> Tensor:
    """The derivative of the sigmoid."""
    s = sigmoid(x)
    return s * (1 - s)  # type: ignore[no-any-return]


def _softsign_slope(x: Tensor) -> Tensor:
    return names.reciprocal(square(names.abs(x) + 1))  # type: ignore[no-any-return]


def _softsign_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor) -> tuple[Tensor]:
    return (mul(dy, _softsign_slope(x)),)


def _tanhshrink_vjp(needs: Needs, dy: Tensor, y: Meta, x: Tensor) -> tuple[Tensor]:
    return (mul(dy, square(tanh(x))),)


silu = enter("silu", _by_x("silu", _nn.silu, aten("silu_backward"), silu_second))
mish = enter("mish", _by_x("mish", _nn.mish, aten("mish_backward"), _mish_second))
hardswish = enter(
    "hardswish",
    _by_x(
        "hardswish",
        _nn.hardswish,
        aten("hardswish_backward"),
        lambda x: names.where(names.lt(names.abs(x), 3), 1 / 3, constant_like(x, 0)),
    ),
)
hardsigmoid = enter(
    "hardsigmoid",
    _by_x("hardsigmoid", _nn.hardsigmoid, aten("hardsigmoid_backward"), None, INCREASING),
)
logsigmoid = enter(
    "logsigmoid",
    _by_x("logsigmoid", _nn.log_sigmoid, kernels.log_sigmoid_backward, lambda x: neg(_bell(x))),
)
enter("log_sigmoid", logsigmoid)
softsign = enter("softsign", unary(Elementwise("softsign", kernels.softsign, _softsign_vjp)))
tanhshrink = enter(
    "tanhshrink", unary(Elementwise("tanhshrink", kernels.tanhshrink, _tanhshrink_vjp))
)


# With settings.


def gelu_second(x: Tensor, approximate: str) -> Tensor:
    """The second derivative of gelu."""
    if approximate == "none":
        return exp(square(x) * -0.5) * ((2 - square(x)) / math.sqrt(2 * math.pi))  # type: ignore[no-any-return]
    c, k = 0.044715, math.sqrt(2 / math.pi)
    t = tanh((x + c * x * square(x)) * k)
    bell, slope = 1 - t * t, (3 * c * square(x) + 1) * k
    return bell * slope + 0.5 * x * bell * (6 * k * c * x - 2 * t * square(slope))  # type: ignore[no-any-return]


_gelu = _by_x(
    "gelu",
    kernels.gelu,
    kernels.gelu_backward,
    gelu_second,
)


@named
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x), with the normal distribution function Phi or its "tanh" approximation.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
    """
    return _gelu(input, approximate)  # type: ignore[no-any-return]


def _elu_second(x: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    bend = exp(x * input_scale) * (alpha * scale * input_scale * input_scale)
    return names.where(names.le(x, 0), bend, 0.0)  # type: ignore[no-any-return]


_elu = _by_x(
    "elu",
    _nn.elu,
    kernels.elu_backward,
    _elu_second,
)


@named
def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha * (exp(x) - 1)."""
    return _elu(input, alpha, 1.0, 1.0)  # type: ignore[no-any-return]


_SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0)


@named
def selu(input: Tensor) -> Tensor:
    """elu with the scales that keep mean 0 and variance 1.

    Source: Klambauer et al., "Self-Normalizing Neural Networks", 2017.
    """
    return _elu(input, *_SELU)  # type: ignore[no-any-return]


@named
def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha * (exp(x / alpha) - 1)."""
    if alpha == 0:
        raise OnefoldValueError("celu: alpha must not be 0")
    return _elu(input, alpha, 1.0, 1.0 / alpha)  # type: ignore[no-any-return]


_leaky_relu = _by_x("leaky_relu", _nn.leaky_relu, kernels.leaky_relu_backward)


@named
def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, else negative_slope * x."""
    return _leaky_relu(input, negative_slope)  # type: ignore[no-any-return]


def _softplus_second(x: Tensor, beta: float, threshold: float) -> Tensor:
    scaled = x * beta
    return names.where(names.gt(scaled, threshold), 0.0, _bell(scaled) * beta)  # type: ignore[no-any-return]


_softplus = _by_x("softplus", _nn.softplus, aten("softplus_backward"), _softplus_second)


@named
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta, and x where beta * x > threshold."""
    return _softplus(input, beta, threshold)  # type: ignore[no-any-return]


_hardtanh = _by_x("hardtanh", _nn.hardtanh, aten("hardtanh_backward"), None, INCREASING)


@named
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x clamped to [min_val, max_val]."""
    return _hardtanh(input, min_val, max_val)  # type: ignore[no-any-return]


@named
def relu6(input: Tensor) -> Tensor:
    """x clamped to [0, 6]."""
    return _hardtanh(input, 0.0, 6.0)  # type: ignore[no-any-return]


_hardshrink = _by_x("hardshrink", torch.hardshrink, aten("hardshrink_backward"))
_softshrink = _by_x("softshrink", _nn.softshrink, aten("softshrink_backward"))
_threshold = _by_x(
    "threshold",
    torch.threshold,
    kernels.threshold_backward,
)


@named
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0."""
    return _hardshrink(input, lambd)  # type: ignore[no-any-return]


@named
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, and 0 where |x| <= lambd."""
    return _softshrink(input, lambd)  # type: ignore[no-any-return]


@named
def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """x where x > threshold, else value."""
    return _threshold(input, threshold, value)  # type: ignore[no-any-return]
