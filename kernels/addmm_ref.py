"""Matrix products that are added to a matrix."""

from __future__ import annotations

import torch
from torch import Tensor


def nn(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`x + a @ b`."""
    return torch.addmm(x, a, b)


def nt(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`x + a @ b.T`."""
    return torch.addmm(x, a, b.t())


def tn(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`x + a.T @ b`."""
    return torch.addmm(x, a.t(), b)
