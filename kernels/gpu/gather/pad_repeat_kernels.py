"""Constant padding, repeat, repeat_interleave and diag_embed as copies into strided tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ... import pad_repeat_ref as reference
from ...pad_repeat_ref import Pads
from ..pointwise.copy_kernels import copy_into, fill
from .padding_kernels import pad, pad_grad, unfold_grad

__all__ = ["diag_embed", "pad", "pad_grad", "pad_constant", "repeat", "repeat_interleave"]
__all__ += ["unfold_grad"]


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


def repeat(x: Tensor, times: Sequence[int]) -> Tensor:
    new = len(times) - x.ndim
    if new < 0 or min(times, default=0) < 0:
        return reference.repeat(x, times)  # torch says what is wrong
    sizes = (*(1,) * new, *x.shape)
    apart = [part for both in zip(times, sizes, strict=True) for part in both]
    single = [part for size in sizes for part in (1, size)]
    y = torch.empty(apart, dtype=x.dtype, device=x.device)
    copy_into(y, x.view(single).expand(apart))
    return y.view([count * size for count, size in zip(times, sizes, strict=True)])


def repeat_interleave(x: Tensor, count: int, dim: int) -> Tensor:
    if not x.ndim or count < 0:
        return reference.repeat_interleave(x, count, dim)
    dim %= x.ndim
    shape = (*x.shape[: dim + 1], count, *x.shape[dim + 1 :])
    y = torch.empty(shape, dtype=x.dtype, device=x.device)
    copy_into(y, x.unsqueeze(dim + 1).expand(shape))
    return y.flatten(dim, dim + 1)


def diag_embed(x: Tensor, shape: Sequence[int], offset: int, dim1: int, dim2: int) -> Tensor:
    y = fill(torch.empty(tuple(shape), dtype=x.dtype, device=x.device), 0)
    copy_into(torch.diagonal(y, offset, dim1, dim2), x)
    return y
