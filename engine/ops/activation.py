"""Activations of neural networks. Their gradients are ops of their own, with one kernel each."""

from __future__ import annotations

import math

import torch

from ...errors import OnefoldRuntimeError, OnefoldValueError
from ...kernels import pointwise_ref as kernels
from ...kernels.pointwise_ref import aten
from ..names import register_function
from ..tensor import Tensor
from .arithmetic import mul, neg
from .elementwise import (
    elementwise,
    gradient_kernel,
    gradient_op,
    settings_of,
    torch_function,
    with_settings,
)
from .like import constant_like
from .pointwise import INCREASING, conj_of, register_elementwise
from .unary import abs, exp, expm1, log1p, reciprocal, square
from .where import clamp, clamp_max, clamp_min, where

_nn = torch._C._nn


# By the output.


@gradient_kernel(kernels.relu_backward, flat=True)
def _relu_backward(dy: Tensor, y: Tensor) -> Tensor:
    return where(y <= 0, 0, dy)


@elementwise(torch.relu, gradient=_relu_backward, passes=INCREASING)
def relu(input: Tensor) -> Tensor:
    """x where x > 0, else 0."""
    return where(input <= 0, 0, input)


@gradient_kernel(aten("sigmoid_backward"), second=lambda y: 1 - y * 2)
def _sigmoid_backward(dy: Tensor, y: Tensor) -> Tensor:
    return dy * (1 - y) * y


sigmoid = torch_function(torch.sigmoid, _sigmoid_backward, passes=INCREASING)


@gradient_kernel(aten("tanh_backward"), second=lambda y: y * -2)
def _tanh_backward(dy: Tensor, y: Tensor) -> Tensor:
    return dy * (1 - y * y)


tanh = torch_function(torch.tanh, _tanh_backward, passes=INCREASING)


# By the input.


def silu_second(x: Tensor) -> Tensor:
    """The second derivative of silu."""
    s = sigmoid(x)
    return s * (1 - s) * ((1 - s * 2) * x + 2)


@gradient_kernel(aten("silu_backward"), second=silu_second)
def _silu_backward(dy: Tensor, input: Tensor) -> Tensor:
    s = sigmoid(input)
    return dy * s * (1 + input * (1 - s))


@elementwise(_nn.silu, gradient=_silu_backward)
def silu(input: Tensor) -> Tensor:
    """x * sigmoid(x)"""
    return input * sigmoid(input)


def _mish_second(x: Tensor) -> Tensor:
    s, t = sigmoid(x), tanh(softplus(x))
    first = (1 - t * t) * s
    return 2 * first + x * ((1 - t * t) * (s * (1 - s) - 2 * t * s * s))


@gradient_kernel(aten("mish_backward"), second=_mish_second)
def _mish_backward(dy: Tensor, input: Tensor) -> Tensor:
    t = tanh(clamp_min(input, 0.0) + log1p(exp(-abs(input))))
    return dy * (t + input * sigmoid(input) * (1 - t * t))


@elementwise(_nn.mish, gradient=_mish_backward)
def mish(input: Tensor) -> Tensor:
    """x * tanh(softplus(x))"""
    return input * tanh(clamp_min(input, 0.0) + log1p(exp(-abs(input))))


@gradient_kernel(
    aten("hardswish_backward"), second=lambda x: where(abs(x) < 3, 1 / 3, constant_like(x, 0))
)
def _hardswish_backward(dy: Tensor, input: Tensor) -> Tensor:
    return where(input <= -3, 0, where(input < 3, dy * (input / 3 + 0.5), dy))


@elementwise(_nn.hardswish, gradient=_hardswish_backward)
def hardswish(input: Tensor) -> Tensor:
    """x * hardsigmoid(x)"""
    return input * clamp_max(clamp_min(input + 3, 0.0), 6.0) / 6


_SIXTH = 0.1666666716337204  # as in torch: in float32, for all dtypes


@gradient_kernel(aten("hardsigmoid_backward"), flat=True)
def _hardsigmoid_backward(dy: Tensor, input: Tensor) -> Tensor:
    return where((input > -3) & (input < 3), dy * _SIXTH, 0)


@elementwise(_nn.hardsigmoid, gradient=_hardsigmoid_backward, passes=INCREASING)
def hardsigmoid(input: Tensor) -> Tensor:
    """x / 6 + 1 / 2, clamped to [0, 1]."""
    return clamp_max(clamp_min(input + 3, 0.0), 6.0) / 6


def _bell(x: Tensor) -> Tensor:
    """The derivative of the sigmoid."""
    s = sigmoid(x)
    return s * (1 - s)


@gradient_kernel(second=lambda x: neg(_bell(x)))
def _logsigmoid_backward(dy: Tensor, input: Tensor) -> Tensor:
    return dy * sigmoid(-input)


@elementwise(_nn.log_sigmoid, gradient=_logsigmoid_backward)
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x))"""
    return clamp_max(input, 0.0) - log1p(exp(-abs(input)))


@elementwise(gradient=lambda dy, input: mul(dy, reciprocal(square(abs(input) + 1))))
def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)"""
    return input / (abs(input) + 1)


@elementwise(gradient=lambda dy, input: mul(dy, conj_of(square(tanh(input)))))
def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)"""
    return input - tanh(input)


# With settings.


def gelu_second(x: Tensor, approximate: str) -> Tensor:
    """The second derivative of gelu."""
    if approximate == "none":
        return exp(square(x) * -0.5) * ((2 - square(x)) / math.sqrt(2 * math.pi))
    c, k = 0.044715, math.sqrt(2 / math.pi)
    t = tanh((x + c * x * square(x)) * k)
    bell, slope = 1 - t * t, (3 * c * square(x) + 1) * k
    return bell * slope + 0.5 * x * bell * (6 * k * c * x - 2 * t * square(slope))


_gelu_backward = gradient_op(
    "gelu_backward",
    kernels.gelu_backward,
    lambda ddx, dy, x, approximate: ddx * dy * gelu_second(x, approximate),
    settings_of(["approximate"], {"approximate": str}),
)


def _gelu_gradient(dy: Tensor, x: Tensor, approximate: str) -> Tensor:
    return _gelu_backward(dy, x, approximate)


_gelu = with_settings("gelu", kernels.gelu, "approximate", _gelu_gradient)


@register_elementwise
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x), with the normal distribution function Phi or its "tanh" approximation.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
    """
    return _gelu(input, approximate)


def _elu_second(x: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    bend = exp(x * input_scale) * (alpha * scale * input_scale * input_scale)
    return where(x <= 0, bend, 0.0)


@gradient_kernel(kernels.elu_backward, second=_elu_second)
def _elu_backward(
    dy: Tensor, input: Tensor, alpha: float, scale: float, input_scale: float
) -> Tensor:
    bend = dy * input_scale * alpha * scale * exp(input * input_scale)
    return where(input <= 0, bend, dy * scale)


@elementwise(_nn.elu, gradient=_elu_backward)
def _elu(input: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    return where(input > 0, input * scale, expm1(input * input_scale) * alpha * scale)


@register_elementwise
def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha * (exp(x) - 1)."""
    return _elu(input, alpha, 1.0, 1.0)


_SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0)


@register_elementwise
def selu(input: Tensor) -> Tensor:
    """elu with the scales that keep mean 0 and variance 1.

    Source: Klambauer et al., "Self-Normalizing Neural Networks", 2017.
    """
    return _elu(input, *_SELU)


@register_elementwise
def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha * (exp(x / alpha) - 1)."""
    if alpha == 0:
        raise OnefoldValueError("celu: alpha must not be 0")
    return _elu(input, alpha, 1.0, 1.0 / alpha)


@gradient_kernel(kernels.leaky_relu_backward, flat=True)
def _leaky_relu_backward(dy: Tensor, input: Tensor, negative_slope: float) -> Tensor:
    return where(input > 0, dy, dy * negative_slope)


@elementwise(_nn.leaky_relu, gradient=_leaky_relu_backward)
def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, else negative_slope * x."""
    return where(input > 0, input, input * negative_slope)


def _softplus_second(x: Tensor, beta: float, threshold: float) -> Tensor:
    scaled = x * beta
    return where(scaled > threshold, 0.0, _bell(scaled) * beta)


@gradient_kernel(aten("softplus_backward"), second=_softplus_second)
def _softplus_backward(dy: Tensor, input: Tensor, beta: float, threshold: float) -> Tensor:
    return where(input * beta > threshold, dy, dy * sigmoid(input * beta))


@elementwise(_nn.softplus, gradient=_softplus_backward)
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta, and x where beta * x > threshold."""
    scaled = input * beta
    bent = (clamp_min(scaled, 0.0) + log1p(exp(-abs(scaled)))) / beta
    return where(scaled > threshold, input, bent)


@gradient_kernel(aten("hardtanh_backward"), flat=True)
def _hardtanh_backward(dy: Tensor, input: Tensor, min_val: float, max_val: float) -> Tensor:
    return where((input <= min_val) | (input >= max_val), 0, dy)


@elementwise(_nn.hardtanh, gradient=_hardtanh_backward, passes=INCREASING)
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x clamped to [min_val, max_val]."""
    return clamp(input, min_val, max_val)


@register_elementwise
def relu6(input: Tensor) -> Tensor:
    """x clamped to [0, 6]."""
    return hardtanh(input, 0.0, 6.0)


@elementwise(gradient=lambda dy, input: dy * clamp_min(input, 0.0) * 2)
def square_relu(input: Tensor) -> Tensor:
    """The square of relu: x * x where x > 0, else 0. Source: So et al., "Primer" (2021)."""
    return square(clamp_min(input, 0.0))


@elementwise(
    gradient=lambda dy, input: (
        dy * (sigmoid(input * 1.702) * (1 + input * 1.702 * (1 - sigmoid(input * 1.702))))
    )
)
def quick_gelu(input: Tensor) -> Tensor:
    """x * sigmoid(1.702 * x), close to gelu. Source: Hendrycks and Gimpel (2016)."""
    return input * sigmoid(input * 1.702)


@gradient_kernel(aten("hardshrink_backward"), flat=True)
def _hardshrink_backward(dy: Tensor, input: Tensor, lambd: float) -> Tensor:
    return where((input >= -lambd) & (input <= lambd), 0, dy)


@elementwise(torch.hardshrink, out=True, gradient=_hardshrink_backward)
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0."""
    return where((input >= -lambd) & (input <= lambd), 0, input)


@gradient_kernel(aten("softshrink_backward"), flat=True)
def _softshrink_backward(dy: Tensor, input: Tensor, lambd: float) -> Tensor:
    return where((input >= -lambd) & (input <= lambd), 0, dy)


@elementwise(_nn.softshrink, gradient=_softshrink_backward)
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, and 0 where |x| <= lambd."""
    near = where(input < -lambd, input + lambd, input * 0)
    return where(input > lambd, input - lambd, near)


@gradient_kernel(kernels.threshold_backward, flat=True)
def _threshold_backward(dy: Tensor, input: Tensor, threshold: float, value: float) -> Tensor:
    return where(input <= threshold, 0, dy)


@elementwise(torch.threshold, out=True, gradient=_threshold_backward)
def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """x where x > threshold, else value."""
    return where(input <= threshold, value, input)


@elementwise(
    torch._prelu_kernel,
    gradient=(
        lambda dy, input, weight: where(input > 0, dy, mul(dy, weight)),
        lambda dy, input: where(input > 0, 0, mul(dy, input)),
    ),
)
def _prelu_kernel(input: Tensor, weight: Tensor) -> Tensor:
    return where(input > 0, input, weight * input)


@register_function
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where it is positive, weight * x elsewhere; one weight, or one for each channel (dim 1).

    Source: He et al., "Delving Deep into Rectifiers" (2015). Raises OnefoldRuntimeError for weights
    of another number.
    """
    channels = input.shape[1] if input.ndim > 1 else 1
    if weight.numel() not in (1, channels) or weight.ndim > 1:
        raise OnefoldRuntimeError(
            f"prelu: weight must be one number or one for each of {channels} channels, but has "
            f"shape {tuple(weight.shape)}"
        )
    if weight.numel() == 1:
        scale = weight.reshape(()) if not input.ndim else weight.reshape([1] * input.ndim)
    else:
        scale = weight.reshape([-1 if dim == 1 else 1 for dim in range(input.ndim)])
    return _prelu_kernel(input, scale)
