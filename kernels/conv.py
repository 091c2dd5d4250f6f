"""Gradients of convolution and pooling on local tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Ints = tuple[int, ...]

_backward = torch.ops.aten.convolution_backward.default


def convolution_weight_grad(
    dy: Tensor,
    x: Tensor,
    shape: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> Tensor:
    """The gradient of a convolution for its weight, which has this shape."""
    if dy.numel() == 0 or x.numel() == 0:
        return x.new_zeros(shape)
    weight = x.new_empty(shape)  # only its shape is looked at
    sizes = (stride, padding, dilation, transposed, output_padding, groups)
    grad: Tensor = _backward(dy, x, weight, None, *sizes, [False, True, False])[1]
    return grad


def max_pool_scatter(dy: Tensor, indices: Tensor, shape: Sequence[int]) -> Tensor:
    """Add each gradient where its maximum was taken; indices count in planes of `shape`."""
    dx = dy.new_zeros(*dy.shape[: dy.ndim - len(shape)], torch.Size(shape).numel())
    if dy.numel():
        lead = dy.ndim - len(shape)
        dx.scatter_add_(lead, indices.flatten(lead), dy.flatten(lead))
    return dx.view(*dy.shape[: dy.ndim - len(shape)], *shape)


def max_pool_gather(u: Tensor, indices: Tensor, plane_dims: int) -> Tensor:
    """The elements of u, in planes of its last dims, at which the maxima were taken."""
    lead = u.ndim - plane_dims
    return u.flatten(lead).gather(lead, indices.flatten(lead)).view(indices.shape)
