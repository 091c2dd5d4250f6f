"""sort, topk and kthvalue on local tensors."""

from __future__ import annotations

import torch
from torch import Tensor


def sort(x: Tensor, dim: int, descending: bool, stable: bool) -> tuple[Tensor, Tensor]:
    """torch.sort."""
    values, indices = torch.sort(x, dim=dim, descending=descending, stable=stable)
    return values, indices


def topk(x: Tensor, dim: int, k: int, largest: bool, ordered: bool) -> tuple[Tensor, Tensor]:
    """torch.topk; which of equal values are taken is not said."""
    values, indices = torch.topk(x, k, dim, largest, ordered)
    return values, indices


def kthvalue(x: Tensor, dim: int, k: int) -> tuple[Tensor, Tensor]:
    """The k-th smallest value, counted from 1; the dim stays with size 1."""
    values, indices = torch.kthvalue(x, k, dim, keepdim=True)
    return values, indices
