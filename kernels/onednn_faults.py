"""Convolutions on the CPU that oneDNN 3.12, of torch 2.13, computes wrongly, or crashes at.

With strides it crashes where whole windows lie in the padding. In half precision it reads memory
that was never written where a stride leaves one place in the last dim (pytorch/pytorch#169688). Of
an input whose padding is written out, and in float32, it is right.
"""

from __future__ import annotations

from operator import ge

import torch
from torch import Tensor

from .host_memory import on_host

Ints = tuple[int, ...]


def strikes(x: Tensor, shape: Ints, stride: Ints, padding: Ints, dilation: Ints) -> bool:
    """Whether the convolution of `x` by a weight of this shape is such a one.

    >>> x = torch.ones(1, 3, 8, 2, dtype=torch.bfloat16)
    >>> strikes(x, (4, 3, 3, 2), (1, 2), (1, 0), (1, 1))
    True
    >>> strikes(x.float(), (4, 3, 3, 2), (1, 2), (1, 0), (1, 1))
    False
    """
    if max(stride) == 1:
        return False
    if any(map(ge, padding, shape[2:])):
        return on_host(x)
    if x.dtype.itemsize != 2 or stride[-1] == 1:
        return False
    span = dilation[-1] * (shape[-1] - 1) + 1
    return x.shape[-1] + 2 * padding[-1] - span < stride[-1] and on_host(x)


def convolution(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints,
    groups: int,
) -> Tensor:  # fmt: skip
    """torch.convolution, not transposed."""
    none, image = (0,) * len(padding), _padded(x, padding)
    wide = None if bias is None else bias.to(image.dtype)
    sizes = (stride, none, dilation, False, none, groups)
    return torch.convolution(image, w.to(image.dtype), wide, *sizes).to(x.dtype)


def weight_grad(
    dy: Tensor, x: Tensor, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Tensor:
    """The gradient of the convolution for its weight."""
    none, image = (0,) * len(padding), _padded(x, padding)
    weight, sizes = image.new_empty(shape), (stride, none, dilation, False, none, groups)
    backward = torch.ops.aten.convolution_backward.default
    grads = backward(dy.to(image.dtype), image, weight, None, *sizes, [False, True, False])
    grad: Tensor = grads[1].to(x.dtype)
    return grad


def _padded(x: Tensor, padding: Ints) -> Tensor:
    """The input with its padding, in float32 or a wider dtype."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return torch.constant_pad_nd(wide, [size for size in reversed(padding) for _ in range(2)])
