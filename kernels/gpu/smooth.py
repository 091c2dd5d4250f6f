"""Scalar functions of pointwise kernels: smooth functions, activations, losses, and gradients.

Arguments are float32 or float64. Forms and branches are those of torch.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

from .scalar import div, isnan, maximum, minimum, reciprocal

_PI = tl.constexpr(3.141592653589793)
_SQRT_HALF = tl.constexpr(0.7071067811865476)
_SQRT_TWO_BY_PI = tl.constexpr(0.7978845608028654)
_BELL = tl.constexpr(0.3989422804014327)  # 1 / sqrt(2 pi)
_CUBIC = tl.constexpr(0.044715)
_LOG_TWO = tl.constexpr(0.6931471805599453)
_SIXTH = tl.constexpr(0.1666666716337204)  # as torch has it: in float32, for all dtypes
_DEGREE = tl.constexpr(0.017453292519943295)

# Exponentials, logarithms, roots.


@triton.jit
def exp(x):
    return tl.exp(x)


@triton.jit
def exp2(x):
    return tl.exp2(x)


@triton.jit
def expm1(x):
    return libdevice.expm1(x)


@triton.jit
def log(x):
    return tl.log(x)


@triton.jit
def log2(x):
    return tl.log2(x)


@triton.jit
def log10(x):
    return libdevice.log10(x)


@triton.jit
def log1p(x):
    return libdevice.log1p(x)


@triton.jit
def sqrt(x):
    if x.dtype == tl.float32:
        return tl.sqrt_rn(x)
    return tl.sqrt(x)


@triton.jit
def rsqrt(x):
    return tl.rsqrt(x)


@triton.jit
def logaddexp(a, b):
    larger = maximum(a, b)
    both = larger + libdevice.log1p(tl.exp(-tl.abs(a - b)))
    return tl.where((a == b) & (tl.abs(a) == float("inf")), a, both)


@triton.jit
def logaddexp2(a, b):
    larger = maximum(a, b)
    both = larger + libdevice.log1p(tl.exp2(-tl.abs(a - b))) / _LOG_TWO
    return tl.where((a == b) & (tl.abs(a) == float("inf")), a, both)


@triton.jit
def xlogy(a, b):
    return tl.where(isnan(b), b, tl.where(a == 0, 0, a * tl.log(b)))


# Trigonometric and hyperbolic functions.


@triton.jit
def sin(x):
    return tl.sin(x)


@triton.jit
def cos(x):
    return tl.cos(x)


@triton.jit
def tan(x):
    return libdevice.tan(x)


@triton.jit
def asin(x):
    return libdevice.asin(x)


@triton.jit
def acos(x):
    return libdevice.acos(x)


@triton.jit
def atan(x):
    return libdevice.atan(x)


@triton.jit
def atan2(a, b):
    return libdevice.atan2(a, b)


@triton.jit
def sinh(x):
    return libdevice.sinh(x)


@triton.jit
def cosh(x):
    return libdevice.cosh(x)


@triton.jit
def tanh(x):
    return libdevice.tanh(x)


@triton.jit
def asinh(x):
    return libdevice.asinh(x)


@triton.jit
def acosh(x):
    return libdevice.acosh(x)


@triton.jit
def atanh(x):
    return libdevice.atanh(x)


@triton.jit
def hypot(a, b):
    return libdevice.hypot(a, b)


@triton.jit
def sinc(x):
    angle = x * _PI
    return tl.where(x == 0, 1, div(tl.sin(angle), angle))


@triton.jit
def deg2rad(x):
    return x * _DEGREE


@triton.jit
def rad2deg(x):
    return x * (180.0 / _PI)


@triton.jit
def angle(x):
    """Of real numbers: 0 or pi."""
    return tl.where(isnan(x), x, tl.where(x < 0, tl.full((), _PI, x.dtype), 0))


# Special functions.


@triton.jit
def erf(x):
    return libdevice.erf(x)


@triton.jit
def erfc(x):
    return libdevice.erfc(x)


@triton.jit
def erfinv(x):
    return libdevice.erfinv(x)


@triton.jit
def lgamma(x):
    return libdevice.lgamma(x)


@triton.jit
def logit(x):
    return tl.log(div(x, 1 - x))


@triton.jit
def logit_within(x, eps):
    return logit(minimum(maximum(x, eps), 1 - eps))


# Activations.


@triton.jit
def relu(x):
    return tl.where(x <= 0, 0, x)


@triton.jit
def sigmoid(x):
    return reciprocal(1 + tl.exp(-x))


@triton.jit
def silu(x):
    return div(x, 1 + tl.exp(-x))


@triton.jit
def _softplus(x):
    """log(1 + exp(x)), for no x too large."""
    return maximum(x, 0 * x) + libdevice.log1p(tl.exp(-tl.abs(x)))


@triton.jit
def mish(x):
    return x * libdevice.tanh(_softplus(x))


@triton.jit
def log_sigmoid(x):
    return minimum(x, 0 * x) - libdevice.log1p(tl.exp(-tl.abs(x)))


@triton.jit
def gelu(x):
    return 0.5 * x * (1 + libdevice.erf(x * _SQRT_HALF))


@triton.jit
def _gelu_tangent(x):
    return libdevice.tanh((x + x * x * x * _CUBIC) * _SQRT_TWO_BY_PI)


@triton.jit
def gelu_tanh(x):
    return 0.5 * x * (1 + _gelu_tangent(x))


@triton.jit
def softsign(x):
    return div(x, 1 + tl.abs(x))


@triton.jit
def tanhshrink(x):
    return x - libdevice.tanh(x)


@triton.jit
def hardswish(x):
    return x * minimum(maximum(x + 3, 0 * x), 0 * x + 6) / 6


@triton.jit
def hardsigmoid(x):
    return minimum(maximum(x + 3, 0 * x), 0 * x + 6) / 6


@triton.jit
def elu(x, alpha, scale, inner):
    return tl.where(x > 0, x * scale, libdevice.expm1(x * inner) * alpha * scale)


@triton.jit
def leaky_relu(x, slope):
    return tl.where(x > 0, x, x * slope)


@triton.jit
def softplus(x, beta, threshold):
    return tl.where(x * beta > threshold, x, div(_softplus(x * beta), beta))


@triton.jit
def hardshrink(x, width):
    return tl.where((x >= -width) & (x <= width), 0, x)


@triton.jit
def softshrink(x, width):
    return tl.where(x > width, x - width, tl.where(x < -width, x + width, x * 0))


@triton.jit
def threshold(x, least, value):
    return tl.where(x <= least, value, x)


# Their gradients; `y` is the activation's result.


@triton.jit
def threshold_backward(dy, x, least):
    return tl.where(x <= least, 0, dy)


@triton.jit
def relu_backward(dy, y):
    return tl.where(y <= 0, 0, dy)


@triton.jit
def sigmoid_backward(dy, y):
    return dy * (1 - y) * y


@triton.jit
def tanh_backward(dy, y):
    return dy * (1 - y * y)


@triton.jit
def silu_backward(dy, x):
    s = sigmoid(x)
    return dy * s * (1 + x * (1 - s))


@triton.jit
def mish_backward(dy, x):
    t = libdevice.tanh(_softplus(x))
    return dy * (t + x * sigmoid(x) * (1 - t * t))


@triton.jit
def log_sigmoid_backward(dy, x):
    return dy * sigmoid(-x)


@triton.jit
def gelu_backward(dy, x):
    cumulated = 0.5 * (1 + libdevice.erf(x * _SQRT_HALF))
    return dy * (cumulated + x * tl.exp(-0.5 * x * x) * _BELL)


@triton.jit
def gelu_tanh_backward(dy, x):
    t = _gelu_tangent(x)
    slope = (1 + x * x * _CUBIC * 3) * _SQRT_TWO_BY_PI
    return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope)


@triton.jit
def hardswish_backward(dy, x):
    return tl.where(x <= -3, 0, tl.where(x < 3, dy * (x / 3 + 0.5), dy))


@triton.jit
def hardsigmoid_backward(dy, x):
    return tl.where((x > -3) & (x < 3), dy * _SIXTH, 0)


@triton.jit
def elu_backward(dy, x, alpha, scale, inner):
    return tl.where(x <= 0, dy * inner * alpha * scale * tl.exp(x * inner), dy * scale)


@triton.jit
def leaky_relu_backward(dy, x, slope):
    return tl.where(x > 0, dy, dy * slope)


@triton.jit
def softplus_backward(dy, x, beta, threshold):
    return tl.where(x * beta > threshold, dy, dy * sigmoid(x * beta))


@triton.jit
def shrink_backward(dy, x, width):
    return tl.where((x >= -width) & (x <= width), 0, dy)


# Losses.


@triton.jit
def squared_error(a, b):
    return (a - b) * (a - b)


@triton.jit
def absolute_error(a, b):
    return tl.abs(a - b)


@triton.jit
def smooth_error(a, b, beta):
    d = tl.abs(a - b)
    return tl.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta)


@triton.jit
def huber_error(a, b, delta):
    d = tl.abs(a - b)
    return tl.where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta))


@triton.jit
def bit_cross_entropy(x, t):
    floor = 0 * x - 100
    return (t - 1) * maximum(libdevice.log1p(-x), floor) - t * maximum(tl.log(x), floor)


@triton.jit
def bit_cross_entropy_with_logits(x, t):
    return (1 - t) * x - log_sigmoid(x)


@triton.jit
def kl_divergence(x, t):
    return xlogy(t, t) - t * x


@triton.jit
def kl_divergence_log(x, t):
    return tl.exp(t) * (t - x)
