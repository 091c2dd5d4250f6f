"""Convolution of any number of dims, also transposed, and its gradient, on local tensors."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from . import onednn_workaround
from .host_memory import on_host
from .memory_format_ref import CHANNELS_LAST, in_format

Ints = tuple[int, ...]

_backward = torch.ops.aten.convolution_backward.default


def convolution(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int,
) -> Tensor:  # fmt: skip
    """torch.convolution."""
    if not transposed and _needs_workaround(x, w.shape, stride, padding, dilation):
        return onednn_workaround.convolution(x, w, bias, stride, padding, dilation, groups)
    return torch.convolution(
        x, w, bias, stride, padding, dilation, transposed, output_padding, groups
    )


def convolution_weight_grad(
    dy: Tensor, x: Tensor, shape: Ints, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int, last: bool = False,
) -> Tensor:  # fmt: skip
    """The gradient of a convolution for its weight, which has this shape.

    The channels are `last` in its memory, or else it is as torch gives it.
    """
    outs, image = (x, dy) if transposed else (dy, x)
    if dy.numel() == 0 or x.numel() == 0:
        grad = x.new_zeros(shape)
    elif _few_places(dy, x, shape, transposed, groups):
        grad = _weight_grad_by_matmul(dy, x, shape, stride, padding, dilation)
    elif _needs_workaround(image, shape, stride, padding, dilation):
        grad = onednn_workaround.weight_grad(outs, image, shape, stride, padding, dilation, groups)
    else:
        weight = _of_shape(shape, x)
        sizes = (stride, padding, dilation, transposed, output_padding, groups)
        grad = _backward(dy, x, weight, None, *sizes, [False, True, False])[1]
    return in_format(grad, CHANNELS_LAST[len(shape)]) if last else grad


def _needs_workaround(x: Tensor, weight: Ints, stride: Ints, padding: Ints, dilation: Ints) -> bool:
    sizes = (stride, padding, dilation)
    return on_host(x) and onednn_workaround.is_affected(x.shape, weight, x.dtype, *sizes)


def _few_places(dy: Tensor, x: Tensor, shape: Ints, transposed: bool, groups: int) -> bool:
    """Whether a weight has at least four output channels for each place of the output.

    The windows of the input are then small compared with the weight, and one product with them is
    faster than oneDNN, which spends its time on reordering the gradient.
    """
    return (
        dy.numel() * 4 <= shape[0] * shape[0]
        and len(shape) == 4
        and shape[2] * shape[3] > 1
        and not transposed
        and groups == 1
        and x.ndim == 4
        and x.dtype is torch.float32
        and on_host(x)
    )


def _weight_grad_by_matmul(
    dy: Tensor, x: Tensor, shape: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> Tensor:
    """The gradient for the weight of a 2d convolution, as one product with the input's windows."""
    windows = torch.ops.aten.im2col(x, shape[2:], dilation, padding, stride)
    windows = windows.transpose(0, 1).reshape(windows.shape[1], -1)
    return torch.mm(dy.transpose(0, 1).reshape(shape[0], -1), windows.t()).view(shape)


# Per dtype the longest that was asked for. Nothing is ever read from it or written to it.
_memory: dict[torch.dtype, Tensor] = {}


def _of_shape(shape: Ints, like: Tensor) -> Tensor:
    """A tensor in place of a weight of which only the shape is looked at.

    Memory as large as a gradient, taken at every call, would make the allocator of the CPU give
    memory back to the system, which costs more than small convolutions do.
    """
    kept = type(like) is Tensor and like.device.type == "cpu"  # not where calls are traced
    return _on_cpu(shape, like.dtype) if kept else like.new_empty(shape)


def _on_cpu(shape: Ints, dtype: torch.dtype) -> Tensor:
    size = prod(shape)
    memory = _memory.get(dtype)
    if memory is None or memory.numel() < size:
        memory = _memory[dtype] = torch.empty(size, dtype=dtype)
    return memory[:size].view(shape)
