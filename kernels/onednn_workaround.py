"""Works around convolutions on the CPU that oneDNN 3.12, which comes with torch 2.13, gets wrong.

A strided convolution crashes the process where whole windows lie in the padding. In half precision
it reads uninitialized memory if its stride leaves a single output in the last dim
(pytorch/pytorch#169688). Both are right in float32 with the padding written out.
"""

from __future__ import annotations

from operator import ge

import torch
from torch import Tensor

Ints = tuple[int, ...]


def is_affected(
    x: Ints, weight: Ints, dtype: torch.dtype, stride: Ints, padding: Ints, dilation: Ints
) -> bool:
    """Whether oneDNN may get a convolution wrong, by the shapes of its input and its weight.

    >>> is_affected((1, 3, 8, 2), (4, 3, 3, 2), torch.bfloat16, (1, 2), (1, 0), (1, 1))
    True
    >>> is_affected((1, 3, 8, 2), (4, 3, 3, 2), torch.float32, (1, 2), (1, 0), (1, 1))
    False
    """
    if max(stride) == 1:
        return False
    if any(map(ge, padding, weight[2:])):
        return True
    span = dilation[-1] * (weight[-1] - 1) + 1
    return dtype.itemsize == 2 and x[-1] + 2 * padding[-1] - span < stride[-1] != 1


def convolution(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints,
    groups: int,
) -> Tensor:  # fmt: skip
    """torch.convolution, not transposed."""
    none, padded = (0,) * len(padding), _padded(x, padding)
    wide = None if bias is None else bias.to(padded.dtype)
    sizes = (stride, none, dilation, False, none, groups)
    return torch.convolution(padded, w.to(padded.dtype), wide, *sizes).to(x.dtype)


def weight_grad(
    dy: Tensor, x: Tensor, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Tensor:
    """The gradient of such a convolution for its weight, which has this shape."""
    none, padded = (0,) * len(padding), _padded(x, padding)
    weight, sizes = padded.new_empty(shape), (stride, none, dilation, False, none, groups)
    backward = torch.ops.aten.convolution_backward.default
    wide = backward(dy.to(padded.dtype), padded, weight, None, *sizes, [False, True, False])
    grad: Tensor = wide[1].to(x.dtype)
    return grad


def _padded(x: Tensor, padding: Ints) -> Tensor:
    """The input with its padding, in float32 or a wider dtype."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return torch.constant_pad_nd(wide, [size for size in reversed(padding) for _ in range(2)])
