"""Convolution and pooling gradients on local tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_backward = torch.ops.aten.convolution_backward.default
_avg_backward = {
    2: torch.ops.aten.avg_pool2d_backward.default,
    3: torch.ops.aten.avg_pool3d_backward.default,
}
_adaptive_backward = {
    2: torch.ops.aten._adaptive_avg_pool2d_backward.default,
    3: torch.ops.aten._adaptive_avg_pool3d_backward.default,
}

Ints = tuple[int, ...]


def convolution_weight_grad(
    dy: Tensor,
    x: Tensor,
    weight_shape: Sequence[int],
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> Tensor:
    """The gradient of a convolution for its weight, whose shape is given."""
    if dy.numel() == 0 or x.numel() == 0:
        return x.new_zeros(weight_shape)
    weight = x.new_empty(1).expand(weight_shape)  # only its shape is looked at
    sizes = (stride, padding, dilation, transposed, output_padding, groups)
    grad: Tensor = _backward(dy, x, weight, None, *sizes, [False, True, False])[1]
    return grad


def max_pool_grad(dy: Tensor, indices: Tensor, shape: Sequence[int]) -> Tensor:
    """Each gradient at the place, in its plane, from which its maximum was taken."""
    spatial = len(shape) - (dy.ndim - _plane_dims(dy, shape))
    dx = dy.new_zeros(shape)
    lead = dy.ndim - spatial
    dx.flatten(lead).scatter_add_(lead, indices.flatten(lead), dy.flatten(lead))
    return dx


def _plane_dims(dy: Tensor, shape: Sequence[int]) -> int:
    return 0
