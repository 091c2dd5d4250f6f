"""Memory formats of dense tensors: row-major order, or with the channels last."""

from __future__ import annotations

import torch
from torch import Tensor

# By the number of dims, the format with the channels last.
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def format_of(x: Tensor) -> torch.memory_format | None:
    """The format of a dense tensor; where it is in both, as with one channel, row-major order.

    >>> format_of(torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last))
    torch.channels_last
    """
    if x.is_contiguous():
        return torch.contiguous_format
    last = CHANNELS_LAST.get(x.ndim)
    return last if last is not None and x.is_contiguous(memory_format=last) else None


def is_alike(x: Tensor, other: Tensor) -> bool:
    """Whether both are dense and have their elements in one order; `other` is in a format."""
    if other.is_contiguous():
        return x.is_contiguous()
    last = CHANNELS_LAST.get(x.ndim)
    return last is not None and x.is_contiguous(memory_format=last)


def dense(x: Tensor) -> Tensor:
    """x, or a copy in row-major order where it is in no format."""
    return x.contiguous() if format_of(x) is None else x


def dense_copy(x: Tensor) -> Tensor:
    """A copy in the same format, also where x is a part of a tensor; else in row-major order."""
    last = CHANNELS_LAST.get(x.ndim)
    if last is None or x.is_contiguous():
        return x.clone(memory_format=torch.contiguous_format)
    return dense(x.clone())


def in_format(x: Tensor, memory_format: torch.memory_format) -> Tensor:
    """x, or a copy of it where it is in another format."""
    return x.contiguous(memory_format=memory_format)
