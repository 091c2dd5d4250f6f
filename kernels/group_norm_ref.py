"""Group normalization: the statistics of groups of channels, and what they make of a tensor.

A group is `size` channels next to each other of one sample, so instance norm has groups of one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .scalar_expression import expression, on_triton

_backward = torch.ops.aten.native_group_norm_backward.default
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def group_norm_with_stats(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, size: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """y, and of each group the mean and the reciprocal of the deviation."""
    batch, channels = x.shape[:2]
    groups = channels // size
    if x.numel() == 0:
        return torch.empty_like(x), x.new_zeros(batch, groups), x.new_zeros(batch, groups)
    given = x.contiguous(memory_format=_format_of(x))
    plane = x.numel() // (batch * channels)
    return torch.native_group_norm(given, weight, bias, batch, channels, plane, groups, eps)


def group_norm_with_stats_grad(
    dy: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, rstd: Tensor, size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of group norm for x, and for a weight and a bias of each channel."""
    batch, channels = x.shape[:2]
    if weight is None:
        weight = x.new_ones(channels)
    if x.numel() == 0:
        return torch.empty_like(x), torch.zeros_like(weight), torch.zeros_like(weight)
    lies = _format_of(x)
    grads = _backward(
        dy.contiguous(memory_format=lies), x.contiguous(memory_format=lies), mean, rstd, weight,
        batch, channels, x.numel() // (batch * channels), channels // size, [True, True, True],
    )  # fmt: skip
    return grads[0], grads[1], grads[2]


def _format_of(x: Tensor) -> torch.memory_format:
    """The format in which torch's function takes x: channels-last on the CPU alone."""
    last = _FORMATS.get(x.ndim)
    if last is not None and x.device.type == "cpu" and not x.is_contiguous():
        return last if x.is_contiguous(memory_format=last) else torch.contiguous_format
    return torch.contiguous_format


# The same in two parts, of which the second is elementwise. Statistics are in float32 or float64,
# of shape (N, C, 1, ...): each channel has those of its group.


def group_statistics(x: Tensor, size: int, eps: float) -> tuple[Tensor, Tensor]:
    """The mean and the reciprocal of the deviation."""
    wide = _wide(x)
    if x.numel():
        variance, mean = torch.var_mean(_in_groups(wide, size), 2, correction=0)
    else:
        mean = variance = wide.new_full((x.shape[0], x.shape[1] // size), torch.nan)
    return _of_channels(mean, x, size), _of_channels(torch.rsqrt(variance + eps), x, size)


def group_sums(
    dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, size: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of each group, the sums of weight * dy * (x - mean) * rstd and of weight * dy; of each
    channel, those of dy * (x - mean) * rstd and of dy, of shape (1, C, 1, ...).
    """
    dims = tuple(range(2, x.ndim))
    slope = _wide(dy)
    unit = (_wide(x) - mean) * rstd
    channels = [slope * unit, slope]
    if dims:
        channels = [each.sum(dims, keepdim=True) for each in channels]
    weighed = channels if weight is None else [each * weight for each in channels]
    along, level = (_of_channels(_in_groups(each, size).sum(2), x, size) for each in weighed)
    d_weight, d_bias = (each.sum(0, keepdim=True) for each in channels)
    return along, level, d_weight, d_bias


def shape_of_statistics(x: Tensor) -> tuple[int, ...]:
    """(N, C, 1, ...)"""
    return (*x.shape[:2], *(1,) * (x.ndim - 2))


def _in_groups(x: Tensor, size: int) -> Tensor:
    """(N, groups, all elements of a group)"""
    return x.reshape(x.shape[0], x.shape[1] // size, size * x.shape[2:].numel())


def _of_channels(number: Tensor, x: Tensor, size: int) -> Tensor:
    """A number of each group (N, groups) for each of its channels."""
    return number.repeat_interleave(size, 1).view(shape_of_statistics(x))


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype is torch.float64 else x.to(torch.float32)


def _standardized(x: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
    return (x - mean) * rstd


def _group_normalized(
    x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    return (x - mean) * (rstd * weight) + bias


def _standard_slope(
    x: Tensor, dy: Tensor, mean: Tensor, rstd: Tensor, along: Tensor, level: Tensor, share: float
) -> Tensor:
    return (dy - (level + (x - mean) * (rstd * along)) * share) * rstd


def _group_norm_slope(
    x: Tensor, dy: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, along: Tensor,
    level: Tensor, share: float,
) -> Tensor:  # fmt: skip
    return (dy * weight - (level + (x - mean) * (rstd * along)) * share) * rstd


expression(name="standardized")(_standardized)
expression(name="group_normalized")(_group_normalized)
expression(name="standard_slope")(_standard_slope)
expression(name="group_norm_slope")(_group_norm_slope)


@on_triton(lambda *args: ("standardized", args[:3]))
def standardized(
    x: Tensor, mean: Tensor, rstd: Tensor, size: int, eps: float, dtype: torch.dtype | None
) -> Tensor:
    """(x - mean) * rstd, by default in the dtype of x; `size` and `eps` are for the gradient."""
    return _standardized(_wide(x), mean, rstd).to(dtype or x.dtype)


@on_triton(lambda *args: ("group_normalized", args[:5]))
def group_normalized(
    x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, bias: Tensor, size: int, eps: float,
    dtype: torch.dtype | None,
) -> Tensor:  # fmt: skip
    """The same, times a weight plus a bias of each channel."""
    return _group_normalized(_wide(x), mean, rstd, weight, bias).to(dtype or x.dtype)


@on_triton("standard_slope")
def standard_slope(
    x: Tensor, dy: Tensor, mean: Tensor, rstd: Tensor, along: Tensor, level: Tensor, share: float
) -> Tensor:
    """The gradient of `standardized` for x, through the statistics too.

    `along` and `level` are the sums of `group_sums`; of these each element has its `share`.
    """
    return _standard_slope(_wide(x), _wide(dy), mean, rstd, along, level, share).to(x.dtype)


@on_triton("group_norm_slope")
def group_norm_slope(
    x: Tensor, dy: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, along: Tensor,
    level: Tensor, share: float,
) -> Tensor:  # fmt: skip
    """The gradient of `group_normalized` for x."""
    y = _group_norm_slope(_wide(x), _wide(dy), mean, rstd, weight, along, level, share)
    return y.to(x.dtype)
