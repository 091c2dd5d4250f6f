"""Losses, element by element: expressions, for which torch has the functions."""

from __future__ import annotations

from typing import Any

import torch

from .scalar_expression import expression, on_triton

_NN: Any = torch._C._nn


@expression(lambda a, b: _NN.mse_loss(a, b, 0))
def squared_error(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """(a - b) squared."""
    return (a - b) * (a - b)


@expression(lambda a, b: _NN.l1_loss(a, b, 0))
def absolute_error(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """|a - b|"""
    return torch.abs(a - b)


@expression(
    lambda a, b, beta: _NN.smooth_l1_loss(a, b, 0, beta),
    triton=lambda a, b, beta: (
        ("smooth_error", (a, b, beta)) if beta else ("absolute_error", (a, b))
    ),
)
def smooth_error(a: torch.Tensor, b: torch.Tensor, beta: float) -> torch.Tensor:
    """|a - b|, and a parabola within beta of 0."""
    d = torch.abs(a - b)
    return torch.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta)


@expression(lambda a, b, delta: _NN.huber_loss(a, b, 0, delta))
def huber_error(a: torch.Tensor, b: torch.Tensor, delta: float) -> torch.Tensor:
    """delta * |a - b|, and a parabola within delta of 0."""
    d = torch.abs(a - b)
    return torch.where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta))


@expression(lambda x, t: _NN.binary_cross_entropy(x, t, None, 0))
def bit_cross_entropy(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """The cross entropy of probabilities and targets."""
    other = torch.clamp_min(torch.log1p(-x), -100.0)
    return (t - 1) * other - t * torch.clamp_min(torch.log(x), -100.0)


@expression(lambda x, t: torch.binary_cross_entropy_with_logits(x, t, None, None, 0))
def bit_cross_entropy_with_logits(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """The cross entropy of sigmoid(x) and targets."""
    log_sigmoid = torch.clamp_max(x, 0.0) - torch.log1p(torch.exp(-torch.abs(x)))
    return (1 - t) * x - log_sigmoid


@on_triton(lambda x, t, log: ("kl_divergence_log" if log else "kl_divergence", (x, t)))
def kl_divergence(x: torch.Tensor, t: torch.Tensor, log_target: bool) -> torch.Tensor:
    """t * (log t - x); of logarithms of targets with `log_target`."""
    return torch.kl_div(x, t, 0, log_target=log_target)


@expression(name="kl_divergence")
def _kl_divergence(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return torch.xlogy(t, t) - t * x


@expression(name="kl_divergence_log")
def _kl_divergence_log(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return torch.exp(t) * (t - x)
