"""Padding: the result filled, and the tensor copied into its middle."""

from __future__ import annotations

import torch
from torch import Tensor

from ..arrange import Pads
from .movement import copy_into, fill


def pad_constant(x: Tensor, pads: Pads, value: float) -> Tensor:
    shape = [size + before + after for size, (before, after) in zip(x.shape, pads, strict=True)]
    y = fill(torch.empty(shape, dtype=x.dtype, device=x.device), value)
    inner, source = y, x
    for dim, (before, after) in enumerate(pads):
        size = source.shape[dim] + min(before, 0) + min(after, 0)
        source = source.narrow(dim, max(-before, 0), size)
        inner = inner.narrow(dim, max(before, 0), size)
    copy_into(inner, source)
    return y
