"""Convolution of any number of dims, also transposed, and its gradient, on local tensors."""

from __future__ import annotations

import torch
from torch import Tensor

Ints = tuple[int, ...]

_backward = torch.ops.aten.convolution_backward.default


def convolution(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int,
) -> Tensor:  # fmt: skip
    """torch.convolution."""
    return torch.convolution(
        x, w, bias, stride, padding, dilation, transposed, output_padding, groups
    )


def convolution_weight_grad(
    dy: Tensor, x: Tensor, shape: Ints, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int,
) -> Tensor:  # fmt: skip
    """The gradient of a convolution for its weight, which has this shape."""
    if dy.numel() == 0 or x.numel() == 0:
        return x.new_zeros(shape)
    weight = x.new_empty(shape)  # only its shape is looked at
    sizes = (stride, padding, dilation, transposed, output_padding, groups)
    grad: Tensor = _backward(dy, x, weight, None, *sizes, [False, True, False])[1]
    return grad
