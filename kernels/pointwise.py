"""Elementwise functions that take more than one torch call, and torch's own backward kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Kernel = Callable[..., torch.Tensor]
Exact = tuple[Any, ...]  # a number as an attribute: its value first
_NN: Any = torch._C._nn


def aten(name: str) -> Kernel:
    """The C function of a torch op for which torch has no Python function.

    Its overload is fixed here, which saves the choice at each call.
    """
    kernel: Kernel = getattr(torch.ops.aten, name).default._op
    return kernel


def real(x: torch.Tensor) -> torch.Tensor:
    """The real part, in memory of its own."""
    return torch.real(x).clone(memory_format=torch.contiguous_format)


def imag(x: torch.Tensor) -> torch.Tensor:
    """The imaginary part, in memory of its own."""
    return torch.imag(x).clone(memory_format=torch.contiguous_format)


def positive(x: torch.Tensor) -> torch.Tensor:
    """A copy; bools are refused."""
    return torch.positive(x).clone()


def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The values in another dtype; of complex ones the real part."""
    if x.dtype.is_complex and not dtype.is_complex and dtype is not torch.bool:
        return torch.real(x).to(dtype, copy=True)  # not a view of the real parts
    return x.to(dtype)


# A number and a tensor.


def number_like(n: Any, x: torch.Tensor) -> torch.Tensor:
    """The number as a 0-d tensor that promotes as the number does."""
    return torch.full((), n, dtype=torch.result_type(x, n), device=x.device)


def number_first(kernel: Kernel) -> Kernel:
    """A function of two tensors for a number and a tensor."""

    def call(n: Any, x: torch.Tensor) -> torch.Tensor:
        return kernel(number_like(n, x), x)

    call.__name__ = f"{kernel.__name__}_number_first"
    return call


def number_last(kernel: Kernel) -> Kernel:
    """A function of two tensors for a tensor and a number."""

    def call(x: torch.Tensor, n: Any) -> torch.Tensor:
        return kernel(x, number_like(n, x))

    call.__name__ = f"{kernel.__name__}_number_last"
    return call


def rsub(n: Any, x: torch.Tensor) -> torch.Tensor:
    """n - x"""
    return torch.rsub(x, n)


def number_div(n: Any, x: torch.Tensor) -> torch.Tensor:
    """n / x, as torch does it: times the reciprocal."""
    result: torch.Tensor = torch.reciprocal(x) * n
    return result


def div_floor(a: Any, b: Any) -> torch.Tensor:
    """a / b rounded down."""
    return torch.div(a, b, rounding_mode="floor")


def div_trunc(a: Any, b: Any) -> torch.Tensor:
    """a / b rounded towards 0."""
    return torch.div(a, b, rounding_mode="trunc")


# Choices, and numbers alone.


def filled(x: torch.Tensor, shape: Sequence[int], value: Any) -> torch.Tensor:
    """A tensor of a shape with one number everywhere, of the dtype of x."""
    return x.new_full(shape, value)


def where_numbers(condition: torch.Tensor, a: Exact, b: Exact) -> torch.Tensor:
    """One number where the condition holds, the other elsewhere."""
    return torch.where(condition, a[0], b[0])


def where_first(condition: torch.Tensor, x: torch.Tensor, number: Exact) -> torch.Tensor:
    """The number where the condition holds."""
    return torch.where(condition, number[0], x)


def where_last(condition: torch.Tensor, x: torch.Tensor, number: Exact) -> torch.Tensor:
    """The number where the condition does not hold."""
    return torch.where(condition, x, number[0])


def masked_fill(x: torch.Tensor, mask: torch.Tensor, number: Exact) -> torch.Tensor:
    """The number where the mask is set; the dtype is that of x."""
    return torch.masked_fill(x, mask, number[0])


def clamp(x: torch.Tensor, low: Any, high: Any, *kinds: type) -> torch.Tensor:
    """x within [low, high], of which one may be None; `kinds` only tell calls apart."""
    return torch.clamp(x, low, high)


def nan_to_num(x: torch.Tensor, nan: Exact, high: Exact, low: Exact) -> torch.Tensor:
    """Numbers in the place of nan and the infinities."""
    return torch.nan_to_num(x, nan[0], high[0], low[0])


def round(x: torch.Tensor, decimals: int = 0) -> torch.Tensor:
    """The nearest value with this many decimals."""
    return torch.round(x, decimals=decimals) if decimals else torch.round(x)


def polygamma(x: torch.Tensor, n: int) -> torch.Tensor:
    """The derivative of order n of digamma."""
    return torch.polygamma(n, x)


def norm_power(x: torch.Tensor, ord: float) -> torch.Tensor:
    """|x| ** ord"""
    return torch.pow(torch.abs(x), ord)


def norm_root(x: torch.Tensor, ord: float) -> torch.Tensor:
    """x ** (1 / ord)"""
    return torch.sqrt(x) if ord == 2 else torch.pow(x, 1 / ord)


# Activations and their gradients.


def softsign(x: torch.Tensor) -> torch.Tensor:
    """x / (1 + |x|)"""
    return x / (x.abs() + 1)


def tanhshrink(x: torch.Tensor) -> torch.Tensor:
    """x - tanh(x)"""
    return x - x.tanh()


def log_sigmoid_backward(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """dy * sigmoid(-x), the gradient of log(sigmoid(x))."""
    return torch.sigmoid(-x).mul_(dy)


_threshold_backward = aten("threshold_backward")
_gelu_backward = aten("gelu_backward")
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


def gelu(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """gelu with approximate "none" or "tanh"."""
    return _NN.gelu(x, approximate=approximate)  # type: ignore[no-any-return]


def gelu_backward(dy: torch.Tensor, x: torch.Tensor, approximate: str) -> torch.Tensor:
    """The gradient of gelu."""
    return _gelu_backward(dy, x, approximate=approximate)


def elu_backward(
    dy: torch.Tensor, x: torch.Tensor, alpha: float, scale: float, inner: float
) -> torch.Tensor:
    """The gradient of elu by its input."""
    return _elu_backward(dy, alpha, scale, inner, False, x)


def leaky_relu_backward(dy: torch.Tensor, x: torch.Tensor, slope: float) -> torch.Tensor:
    """The gradient of leaky_relu by its input."""
    return _leaky_backward(dy, x, slope, False)


# Losses, element by element.


def squared_error(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """(a - b) squared."""
    return _NN.mse_loss(a, b, 0)  # type: ignore[no-any-return]


def absolute_error(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """|a - b|"""
    return _NN.l1_loss(a, b, 0)  # type: ignore[no-any-return]


def smooth_error(a: torch.Tensor, b: torch.Tensor, beta: float) -> torch.Tensor:
    """|a - b|, and a parabola within beta of 0."""
    return _NN.smooth_l1_loss(a, b, 0, beta)  # type: ignore[no-any-return]


def huber_error(a: torch.Tensor, b: torch.Tensor, delta: float) -> torch.Tensor:
    """delta * |a - b|, and a parabola within delta of 0."""
    return _NN.huber_loss(a, b, 0, delta)  # type: ignore[no-any-return]


def bit_cross_entropy(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """The cross entropy of probabilities and targets."""
    return _NN.binary_cross_entropy(x, t, None, 0)  # type: ignore[no-any-return]


def bit_cross_entropy_with_logits(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """The cross entropy of sigmoid(x) and targets."""
    return torch.binary_cross_entropy_with_logits(x, t, None, None, 0)


def kl_divergence(x: torch.Tensor, t: torch.Tensor, log_target: bool) -> torch.Tensor:
    """t * (log t - x); of logarithms of targets with `log_target`."""
    return torch.kl_div(x, t, 0, log_target=log_target)
