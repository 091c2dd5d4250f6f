"""Batch normalisation of whole batches: the statistics are kept for the gradient."""

from __future__ import annotations

import torch
from torch import Tensor

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
        moved_mean, moved_var = x.new_zeros(2, x.shape[1]).unbind()
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
