"""Max and average pooling over planes, the last two or three dims, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Ints = tuple[int, ...]
# kernel_size, stride, padding, dilation, ceil_mode
MaxSizes: TypeAlias = tuple[Ints, Ints, Ints, Ints, bool]
# kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
AvgSizes: TypeAlias = tuple[Ints, Ints, Ints, bool, bool, int | None]

_MAX_POOL = {
    2: torch._C._nn.max_pool2d_with_indices,
    3: torch._C._nn.max_pool3d_with_indices,
}
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
    y, indices = _MAX_POOL[planes](x, *sizes)
    return y, indices


def max_pool_grad(dy: Tensor, x: Tensor, planes: int, sizes: MaxSizes) -> Tensor:
    """dy added at the places of the maxima of x."""
    if x.numel() == 0:
        return torch.zeros_like(x)
    return _scatter(dy, max_pool(x, planes, sizes)[1], tuple(x.shape[x.ndim - planes :]))


def max_pool_take(u: Tensor, x: Tensor, planes: int, sizes: MaxSizes) -> Tensor:
    """u at the places of the maxima of x."""
    return _gather(u, max_pool(x, planes, sizes)[1], planes)


def avg_pool(
    x: Tensor, planes: int, size: Ints, stride: Ints, padding: Ints, ceil: bool, pad: bool,
    divisor: int | None,
) -> Tensor:  # fmt: skip
    """The mean of each window, as torch counts its elements."""
    return _AVG_POOL[planes](x, size, stride, padding, ceil, pad, divisor)


def avg_pool_grad(
    dy: Tensor, shape: Ints, planes: int, size: Ints, stride: Ints, padding: Ints, ceil: bool,
    pad: bool, divisor: int | None,
) -> Tensor:  # fmt: skip
    """The gradient of `avg_pool` for an input of this shape."""
    sizes = (size, stride, padding, ceil, pad, divisor)
    grad: Tensor = _AVG_POOL_GRAD[planes](dy, dy.new_empty(shape), *sizes)
    return grad


def adaptive_avg_pool(x: Tensor, planes: int, size: Ints) -> Tensor:
    """The means of as many windows as asked for."""
    return _ADAPTIVE[planes](x, size)


def adaptive_avg_pool_grad(dy: Tensor, shape: Ints, planes: int, size: Ints) -> Tensor:
    """The gradient of `adaptive_avg_pool` for an input of this shape."""
    grad: Tensor = _ADAPTIVE_GRAD[planes](dy, dy.new_empty(shape))
    return grad


def _scatter(dy: Tensor, indices: Tensor, shape: Sequence[int]) -> Tensor:
    """Add each gradient where its maximum was taken; indices count in planes of `shape`."""
    dx = dy.new_zeros(*dy.shape[: dy.ndim - len(shape)], torch.Size(shape).numel())
    if dy.numel():
        lead = dy.ndim - len(shape)
        dx.scatter_add_(lead, indices.flatten(lead), dy.flatten(lead))
    return dx.view(*dy.shape[: dy.ndim - len(shape)], *shape)


def _gather(u: Tensor, indices: Tensor, plane_dims: int) -> Tensor:
    """The elements of u, in planes of its last dims, at which the maxima were taken."""
    lead = u.ndim - plane_dims
    return u.flatten(lead).gather(lead, indices.flatten(lead)).view(indices.shape)
