"""Memory formats of (N, C, ...): kernels read row-major order and channels-last as they lie."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .copy_kernels import contiguous


def is_channels_last(x: Tensor) -> bool:
    """Whether the channels of x are last in memory: of a dense tensor, or a part of one.

    A part, as each gradient of `cat`, has gaps. What is made of it lies as the whole does.
    """
    if x.ndim < 3 or x.shape[1] == 1 or x.is_contiguous():
        return False
    reach = 1  # of the dims so far, from their first element to behind the last
    for dim in (1, *range(x.ndim - 1, 1, -1), 0):
        size, step = x.shape[dim], x.stride(dim)
        if size > 1:
            if step < reach or (dim == 1 and step > 1):
                return False
            reach += step * (size - 1)
    return True


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
