"""Formatted: local tensors in the memory format of others."""

from __future__ import annotations

from torch import Tensor

from .memory_format_ref import format_of, in_format, is_alike
from .select import pick


def in_format_of(x: Tensor, like: Tensor) -> Tensor:
    """x in the format of a tensor of its shape; where that is in none, in row-major order.

    >>> import torch
    >>> like = torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    >>> in_format_of(torch.ones(2, 3, 4, 5), like).stride()
    (60, 1, 15, 3)
    """
    wanted = format_of(like)
    if wanted is None:
        return x.contiguous()
    return x if is_alike(x, like) else pick(in_format, x.device.type)(x, wanted)
