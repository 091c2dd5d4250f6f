"""Max and average pooling over planes, the last two or three dims, and their gradients."""

from __future__ import annotations

from math import prod
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from .host_memory import on_host
from .memory_format_ref import CHANNELS_LAST, format_of

Ints = tuple[int, ...]
# kernel_size, stride, padding, dilation, ceil_mode
MaxSizes: TypeAlias = tuple[Ints, Ints, Ints, Ints, bool]
# kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
AvgSizes: TypeAlias = tuple[Ints, Ints, Ints, bool, bool, int | None]
# kernel_size, stride, padding, output_size
UnpoolSizes: TypeAlias = tuple[Ints, Ints, Ints, Ints | None]

_LAST = frozenset(CHANNELS_LAST.values())
_LANES = 16  # floats in the widest register of a CPU

_MAX_POOL = {
    2: torch._C._nn.max_pool2d_with_indices,
    3: torch._C._nn.max_pool3d_with_indices,
}
_ADAPTIVE_MAX = {2: torch._C._nn.adaptive_max_pool2d, 3: torch._C._nn.adaptive_max_pool3d}
_UNPOOL = {1: functional.max_unpool1d, 2: functional.max_unpool2d, 3: functional.max_unpool3d}
_AVG_POOL = {2: torch._C._nn.avg_pool2d, 3: torch._C._nn.avg_pool3d}
_AVG_POOL_GRAD = {
    2: torch.ops.aten.avg_pool2d_backward.default,
    3: torch.ops.aten.avg_pool3d_backward.default,
}
_ADAPTIVE = {2: torch._C._nn.adaptive_avg_pool2d, 3: torch._C._nn.adaptive_avg_pool3d}
_ADAPTIVE_GRAD = {
    2: torch.ops.aten._adaptive_avg_pool2d_backward.default,
    3: torch.ops.aten._adaptive_avg_pool3d_backward.default,
}


def max_pool(x: Tensor, planes: int, sizes: MaxSizes) -> tuple[Tensor, Tensor]:
    """(the maximum of each window, its place in the plane)."""
    if planes == 2 and x.ndim == 4 and x.shape[1] >= _LANES and on_host(x):
        # torch takes the channels several at a time where they are last in memory. That is worth
        # the copies, and the results are the same.
        last = x.contiguous(memory_format=torch.channels_last)
        y, indices = _MAX_POOL[2](last, *sizes)
        return (y, indices) if last is x else (y.contiguous(), indices.contiguous())
    y, indices = _MAX_POOL[planes](x, *sizes)
    return y, indices


def max_pool_grad(dy: Tensor, places: Tensor, shape: Ints, planes: int, sizes: MaxSizes) -> Tensor:
    """dy added at the places of the maxima, in zeros of this shape, which lie as dy does."""
    lead = dy.ndim - planes
    if lead == 2 and format_of(dy) in _LAST:
        rows, at = (each.movedim(1, -1).flatten(1, -2) for each in (dy, places))
        dx = dy.new_zeros(shape[0], prod(shape[2:]), shape[1]).scatter_add_(1, at, rows)
        return dx.view(shape[0], *shape[2:], shape[1]).movedim(-1, 1)
    dx = dy.new_zeros(*shape[:lead], prod(shape[lead:]))
    if dy.numel() and dx.numel():
        dx.scatter_add_(lead, places.flatten(lead), dy.flatten(lead))
    return dx.view(shape)


def max_pool_take(u: Tensor, places: Tensor, planes: int) -> Tensor:
    """u at the places of the maxima."""
    lead = u.ndim - planes
    return u.flatten(lead).gather(lead, places.flatten(lead)).view(places.shape)


def max_unpool(x: Tensor, places: Tensor, planes: int, sizes: UnpoolSizes) -> Tensor:
    """Zeros with x at its places in the plane."""
    return _UNPOOL[planes](x, places, *sizes)


def adaptive_max_pool(x: Tensor, planes: int, size: Ints) -> tuple[Tensor, Tensor]:
    """(the maxima of as many windows as asked for, their places in the plane)."""
    y, places = _ADAPTIVE_MAX[planes](x, size)
    return y, places


def adaptive_max_pool_grad(
    dy: Tensor, places: Tensor, shape: Ints, planes: int, size: Ints
) -> Tensor:
    """dy added at the places of the maxima, in zeros of this shape."""
    return max_pool_grad(dy, places, shape, planes, ((), (), (), (), False))


def avg_pool(x: Tensor, planes: int, sizes: AvgSizes) -> Tensor:
    """The mean of each window, as torch counts its elements."""
    return _AVG_POOL[planes](_on_cpu(x, planes), *sizes).to(x.dtype)


def avg_pool_grad(dy: Tensor, shape: Ints, planes: int, sizes: AvgSizes) -> Tensor:
    """The gradient of `avg_pool` for an input of this shape."""
    wide = _on_cpu(dy, planes)
    grad: Tensor = _AVG_POOL_GRAD[planes](wide, _empty(shape, wide), *sizes)
    return grad.to(dy.dtype)


def _on_cpu(x: Tensor, planes: int) -> Tensor:
    """In a dtype for which the CPU has a kernel: it has none for volumes of half precision."""
    return x.float() if planes == 3 and x.dtype in (torch.float16, torch.bfloat16) else x


def adaptive_avg_pool(x: Tensor, planes: int, size: Ints) -> Tensor:
    """The means of as many windows as asked for."""
    return _ADAPTIVE[planes](x, size)


def adaptive_avg_pool_grad(dy: Tensor, shape: Ints, planes: int, size: Ints) -> Tensor:
    """The gradient of `adaptive_avg_pool` for an input of this shape."""
    grad: Tensor = _ADAPTIVE_GRAD[planes](dy, _empty(shape, dy))
    return grad


def _empty(shape: Ints, like: Tensor) -> Tensor:
    """Memory that nobody reads, in the format of another tensor."""
    form = (format_of(like) if len(shape) == like.ndim else None) or torch.contiguous_format
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=form)
