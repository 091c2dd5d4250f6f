"""softmax, log_softmax and their gradients on local tensors."""

from __future__ import annotations

import torch
from torch import Tensor


def softmax(x: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    """exp(x) / sum over dim of exp(x)"""
    return torch.softmax(x, dim, dtype)


def log_softmax(x: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    """The logarithm of softmax."""
    return torch.log_softmax(x, dim, dtype)


def softmax_grad(dy: Tensor, y: Tensor, dim: int) -> Tensor:
    """y * (dy - sum over dim of dy * y)"""
    return torch._softmax_backward_data(dy, y, dim, y.dtype)


def log_softmax_grad(dy: Tensor, y: Tensor, dim: int) -> Tensor:
    """dy - exp(y) * sum over dim of dy"""
    return torch._log_softmax_backward_data(dy, y, dim, y.dtype)
