"""Elementwise functions that take more than one torch call, and torch's own backward kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch

Kernel = Callable[..., torch.Tensor]


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


def softsign(x: torch.Tensor) -> torch.Tensor:
    """x / (1 + |x|)"""
    return x / (x.abs() + 1)


def tanhshrink(x: torch.Tensor) -> torch.Tensor:
    """x - tanh(x)"""
    return x - x.tanh()


def log_sigmoid_backward(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """dy * sigmoid(-x), the gradient of log(sigmoid(x))."""
    return torch.sigmoid(-x).mul_(dy)
