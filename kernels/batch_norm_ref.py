"""Batch normalization: the statistics of channels, what they make of a tensor, and its gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from .scalar_expression import expression, on_triton

_backward = torch.ops.aten.native_batch_norm_backward.default


def batch_norm_with_stats(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """y; the running mean and variance moved by `momentum` towards those of the batch (without
    them, those of the batch); and per channel the mean and the reciprocal of the deviation.
    """
    if running_mean is None or running_var is None:
        moved_mean, moved_var = x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])
        momentum = 1.0
    else:
        moved_mean, moved_var = running_mean.clone(), running_var.clone()
    if x.numel() == 0:
        zeros = torch.zeros_like(moved_mean)
        return torch.empty_like(x), moved_mean, moved_var, zeros, zeros
    y, mean, rstd = torch.native_batch_norm(
        x, weight, bias, moved_mean, moved_var, True, momentum, eps
    )
    return y, moved_mean, moved_var, mean, rstd


def batch_norm_with_stats_grad(
    dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of batch_norm for x, weight and bias."""
    if x.numel() == 0:
        return torch.empty_like(x), torch.zeros_like(weight), torch.zeros_like(weight)
    grads = _backward(dy, x, weight, None, None, mean, rstd, True, eps, [True, True, True])
    return grads[0], grads[1], grads[2]


# The same in two parts, of which the second is elementwise. Statistics are in float32 or float64,
# with size 1 in the dims that they are taken over.


def channel_statistics(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Per channel, the mean and the reciprocal of the deviation; and the running mean and variance
    moved by `momentum` towards those of the batch (without them, those of the batch).
    """
    wide, dims = _wide(x), (0, *range(2, x.ndim))
    if x.numel():
        variance, mean = torch.var_mean(wide, dims, correction=0, keepdim=True)
    else:
        mean = variance = wide.new_full(shape_of_statistics(x), torch.nan)
    count = x.numel() // max(x.shape[1], 1)
    # In memory of its own: a program may change the statistics that it gets.
    now = mean.flatten().clone(), variance.flatten() * (count / max(count - 1, 1))
    moved = [
        new if old is None else torch.lerp(old, new.to(old.dtype), momentum)
        for old, new in zip((running_mean, running_var), now, strict=True)
    ]
    return mean, torch.rsqrt(variance + eps), moved[0], moved[1]


def channel_sums(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    """Per channel, the sums of dy * (x - mean) * rstd and of dy."""
    dims, wide = (0, *range(2, x.ndim)), _wide(dy)
    unit = (_wide(x) - mean) * rstd
    return (wide * unit).sum(dims, keepdim=True), wide.sum(dims, keepdim=True)


def shape_of_statistics(x: Tensor) -> tuple[int, ...]:
    """(1, channels, 1, ...)"""
    return (1, x.shape[1], *(1,) * (x.ndim - 2))


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype is torch.float64 else x.to(torch.float32)


def _normalized(x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (x - mean) * (rstd * weight) + bias


def _slope(
    dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, along: Tensor,
    level: Tensor, share: float,
) -> Tensor:  # fmt: skip
    return (dy - (level + (x - mean) * (rstd * along)) * share) * (rstd * weight)


expression(name="batch_normalized")(_normalized)
expression(name="batch_norm_slope")(_slope)


@on_triton(lambda *args: ("batch_normalized", args[:-1]))
def batch_normalized(
    x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> Tensor:
    """(x - mean) * rstd * weight + bias; `eps` is for the gradient only."""
    return _normalized(_wide(x), mean, rstd, weight, bias).to(x.dtype)


@on_triton("batch_norm_slope")
def batch_norm_slope(
    dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, along: Tensor,
    level: Tensor, share: float,
) -> Tensor:  # fmt: skip
    """The gradient of the same for x, through the statistics too.

    `along` and `level` are the sums of `channel_sums`; of these each element has its `share`.
    """
    return _slope(_wide(dy), _wide(x), mean, rstd, weight, along, level, share).to(x.dtype)
