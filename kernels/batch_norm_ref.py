"""Batch normalisation of whole batches: the statistics are kept for the gradient."""

from __future__ import annotations

import torch
from torch import Tensor

_backward = torch.ops.aten.native_batch_norm_backward.default


def batch_norm_with_stats(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """y; and per channel the mean, the unbiased variance and the reciprocal of the deviation."""
    zeros, variance = x.new_zeros(2, x.shape[1]).unbind()
    if x.numel() == 0:
        return torch.empty_like(x), zeros, variance, torch.zeros_like(zeros)
    # As running statistics with a momentum of 1, torch gives the variance as well.
    y, mean, rstd = torch.native_batch_norm(x, weight, bias, zeros, variance, True, 1.0, eps)
    return y, mean, variance, rstd


def batch_norm_with_stats_grad(
    dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of batch_norm for x, weight and bias."""
    if x.numel() == 0:
        return torch.empty_like(x), torch.zeros_like(weight), torch.zeros_like(weight)
    grads = _backward(dy, x, weight, None, None, mean, rstd, True, eps, [True, True, True])
    return grads[0], grads[1], grads[2]
