"""layer_norm, rms_norm and their gradients on local tensors."""

from __future__ import annotations

import torch
from torch import Tensor

_layer_norm_backward = torch.ops.aten.native_layer_norm_backward.default


def layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: tuple[int, ...], eps: float
) -> Tensor:
    """(x - mean) / deviation * weight + bias over the last dims, which have this shape."""
    return torch.layer_norm(x, shape, weight, bias, eps)


def rms_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: tuple[int, ...], eps: float
) -> Tensor:
    """x / root mean square * weight over the last dims; there is no bias."""
    assert bias is None
    return torch.rms_norm(x, shape, weight, eps)


def layer_norm_with_stats(
    x: Tensor, weight: Tensor, bias: Tensor, shape: tuple[int, ...], eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The same as `layer_norm`, with the mean and the reciprocal of the deviation of each row."""
    return torch.native_layer_norm(x, shape, weight, bias, eps)


def layer_norm_grad(
    dy: Tensor, x: Tensor, weight: Tensor | None, shape: tuple[int, ...], eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of layer_norm for x, weight and bias; mean and deviation are computed again."""
    if weight is None:
        weight = torch.ones(shape, dtype=x.dtype, device=x.device)
    _, mean, rstd = torch.native_layer_norm(x, shape, weight, None, eps)
    return layer_norm_with_stats_grad(dy, x, weight, mean, rstd, shape)


def layer_norm_with_stats_grad(
    dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, shape: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """The same from the mean and the reciprocal of the deviation of each row."""
    if x.numel() == 0:
        return torch.zeros_like(x), torch.zeros_like(weight), torch.zeros_like(weight)
    grads = _layer_norm_backward(dy, x, shape, mean, rstd, weight, weight, [True, True, True])
    return grads[0], grads[1], grads[2]


def layer_norm_input_grad(
    dy: Tensor, x: Tensor, weight: Tensor | None, shape: tuple[int, ...], eps: float
) -> Tensor:
    """The gradient of layer_norm for x alone."""
    _, mean, rstd = torch.native_layer_norm(x, shape, weight, None, eps)
    return layer_norm_with_stats_input_grad(dy, x, weight, mean, rstd, shape)


def layer_norm_with_stats_input_grad(
    dy: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, rstd: Tensor, shape: tuple[int, ...]
) -> Tensor:
    """The same from the mean and the reciprocal of the deviation of each row."""
    if x.numel() == 0:
        return torch.zeros_like(x)
    wanted = [True, False, False]
    dx: Tensor = _layer_norm_backward(dy, x, shape, mean, rstd, weight, None, wanted)[0]
    return dx


def rms_norm_grad(
    dy: Tensor, x: Tensor, weight: Tensor | None, shape: tuple[int, ...], eps: float
) -> tuple[Tensor, Tensor]:
    """Gradients of rms_norm for x and weight."""
    unit, rstd = _unit(x, shape, eps)
    lead = tuple(range(x.ndim - len(shape)))
    d_weight = dy.to(unit.dtype) * unit
    d_weight = d_weight.sum(lead) if lead else d_weight
    dx = _rms_slope(dy, unit, rstd, weight, shape).to(x.dtype)
    return dx, d_weight.to(x.dtype if weight is None else weight.dtype)


def rms_norm_input_grad(
    dy: Tensor, x: Tensor, weight: Tensor | None, shape: tuple[int, ...], eps: float
) -> Tensor:
    """The gradient of rms_norm for x alone."""
    unit, rstd = _unit(x, shape, eps)
    return _rms_slope(dy, unit, rstd, weight, shape).to(x.dtype)


def _unit(x: Tensor, shape: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    """x divided by the roots of the mean squares of rows, and the reciprocals of these."""
    dims = tuple(range(x.ndim - len(shape), x.ndim))
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    rstd = torch.rsqrt(wide.square().mean(dims, keepdim=True) + eps)
    return wide * rstd, rstd


def _rms_slope(
    dy: Tensor, unit: Tensor, rstd: Tensor, weight: Tensor | None, shape: tuple[int, ...]
) -> Tensor:
    g = dy.to(unit.dtype)
    if weight is not None:
        g = g * weight
    dims = tuple(range(unit.ndim - len(shape), unit.ndim))
    return rstd * (g - unit * (g * unit).mean(dims, keepdim=True))
