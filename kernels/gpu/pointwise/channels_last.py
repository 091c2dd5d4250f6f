"""Memory formats of (N, C, ...): kernels read row-major order and channels-last as they lie."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .copy_kernels import contiguous


def is_channels_last(x: Tensor) -> bool:
    """Whether x is dense with its channels last in memory, and is not in row-major order."""
    return x.ndim > 2 and not x.is_contiguous() and turned(x).is_contiguous()


def turned(x: Tensor) -> Tensor:
    """(N, C, ...) as (N, ..., C), a view."""
    return x.permute(0, *range(2, x.ndim), 1)


def turned_back(x: Tensor) -> Tensor:
    """(N, ..., C) as (N, C, ...), a view."""
    return x.permute(0, x.ndim - 1, *range(1, x.ndim - 1))


def dense(x: Tensor, channels_last: bool) -> Tensor:
    """x in dense memory, as (N, ..., C) if its channels are to be last there."""
    x = turned(x) if channels_last else x
    return x if x.is_contiguous() else contiguous(x)


def empty(
    shape: Sequence[int], channels_last: bool, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """A tensor of a shape (N, C, ...) in one of the formats."""
    if not channels_last:
        return torch.empty(tuple(shape), dtype=dtype, device=device)
    n, channels, *rest = shape
    return turned_back(torch.empty((n, *rest, channels), dtype=dtype, device=device))
