"""Channels normalized by the statistics of the batch: two passes forward, and two backward.

One pass takes the statistics (or the two sums of the gradient). An elementwise op does the rest,
which graphs fuse with their neighbors.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...errors import OnefoldTypeError, ShapeError
from ...kernels import batch_norm_ref as kernels
from .. import interpreter
from ..dispatcher import general, several_of
from ..meta import Meta
from ..op import Arg, Gradients, Kernel, Metas, Needs, Op, required
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..views import frozen
from .arithmetic import add, mul
from .cast import cast, widened
from .elementwise_nary import lerp
from .like import constant_like
from .pointwise import Elementwise
from .reduce import is_split_along, mean as mean_op, sum_to, without_partials
from .unary import rsqrt
from .variance import variance_around
from .view import view


def over_channels(x: Meta | Tensor) -> tuple[int, ...]:
    """The dims over which the statistics of a channel are computed."""
    return (0, *range(2, x.ndim))


class StatisticsAttributes(NamedTuple):
    """The epsilon added to the variance."""

    eps: float


class ChannelStatistics(Op):
    """Mean and 1 / deviation of channels; running statistics moved towards those, or those"""

    name = "channel_statistics"
    attributes = StatisticsAttributes
    kernel = staticmethod(kernels.channel_statistics)
    num_outputs = 4
    differentiable = False

    def infer(
        self, x: Meta, running_mean: Meta | None, running_var: Meta | None, *rest: Arg
    ) -> tuple[Meta, ...]:
        if not x.is_floating:
            raise OnefoldTypeError(f"batch_norm needs a floating point tensor, but got {x.dtype}")
        for running in (running_mean, running_var):
            if running is not None and running.shape != x.shape[1:2]:
                raise ShapeError(
                    f"batch_norm: running statistics of shape {tuple(running.shape)} for an input "
                    f"of shape {tuple(x.shape)}; they have one number for each channel"
                )
        wide = torch.float64 if x.dtype is torch.float64 else torch.float32
        kept = x.like((1, x.shape[1], *(1,) * (x.ndim - 2)), wide)
        own = x.like(x.shape[1:2], wide)
        return kept, kept, running_mean or own, running_var or own

    def rule(self, axis: Axis, x: Meta, *rest: Arg) -> Rule:
        count = 0 if rest[0] is None else 2
        at, vector = split(1), split(0)
        return [Signature((at, *(vector,) * count), (at, at, vector, vector))]

    def decompose(self, metas: Metas, attrs: Arg) -> Kernel | None:
        x = required(metas[0])
        return _over_split if is_split_along(x, over_channels(x)) else None


def _over_split(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """The statistics of a split batch, whose ranks exchange two sums."""
    wide, dims = widened(x), over_channels(x)
    mean = without_partials(mean_op(wide, dims, True))
    # From the mean, so that a large mean costs no accuracy.
    variance = without_partials(variance_around(wide, mean, dims, 0.0, True))
    count = x.numel() // max(x.shape[1], 1)
    now = view(mean, (-1,)), mul(view(variance, (-1,)), count / max(count - 1, 1))
    moved = [
        new if old is None else lerp(old, cast(new, old.dtype), momentum)
        for old, new in zip((running_mean, running_var), now, strict=True)
    ]
    return mean, rsqrt(add(variance, eps)), moved[0], moved[1]


class ChannelSums(Op):
    """Per channel the sums of dy * (x - mean) / deviation, and of dy"""

    name = "channel_sums"
    kernel = staticmethod(kernels.channel_sums)
    num_outputs = 2
    like = (2, 2)
    differentiable = False
    flops_per_element = 4.0

    def rule(self, axis: Axis, dy: Meta, x: Meta, mean: Meta, rstd: Meta) -> Rule:
        at, whole = split(1), (broadcast, broadcast)
        others = [split(d) for d in over_channels(x)]
        return [
            Signature((at,) * 4, (at, at)),
            *[Signature((other, other, *whole), (partial_sum,) * 2) for other in others],
            Signature((partial_sum, broadcast, *whole), (partial_sum,) * 2),
        ]


class NormalizedAttributes(NamedTuple):
    """The epsilon that was added to the variance."""

    eps: float


class SlopeAttributes(NamedTuple):
    """The reciprocal of the number of elements of a channel, or of a group of channels."""

    share: float


def _normalized_vjp(
    needs: Needs,
    dy: Tensor,
    y: Meta,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor,
    bias: Meta,
    attrs: NormalizedAttributes,
) -> Gradients:
    """The statistics get no gradient: it is included in that of x."""
    if not needs[0] and not needs[3]:
        return None, None, None, None, sum_to(dy, bias)
    if interpreter.is_grad_enabled():  # to be differentiated again
        dx, d_weight, d_bias = gradients(needs[0], dy, x, weight, attrs.eps)
        return dx, None, None, view(d_weight, weight.shape), view(d_bias, bias.shape)
    dy = without_partials(dy)
    along, level = channel_sums(dy, x, mean, rstd)
    for_x: Tensor | None = None
    if needs[0]:
        whole = without_partials(along), without_partials(level)
        for_x = _slope((dy, x, mean, rstd, weight, *whole), x.shape[1] / max(x.numel(), 1))
    return for_x, None, None, cast(along, weight.dtype), cast(level, bias.dtype)


def gradients(
    for_x: object, dy: Tensor, x: Tensor, weight: Tensor | Meta, eps: float
) -> tuple[Tensor | None, Tensor, Tensor]:
    """The gradients of batch norm by ops that can be differentiated, statistics included.

    The first is None unless one `for_x` is wanted.
    """
    dims, slope = over_channels(x), widened(dy)
    unit, rstd = _unit(widened(x), dims, eps)
    dx = None
    if for_x:
        assert isinstance(weight, Tensor)
        weighed = slope * weight.reshape(1, -1, *[1] * (x.ndim - 2))
        dx = cast(_slope_of_unit(weighed, unit, rstd, dims), x.dtype)
    d_weight, d_bias = (slope * unit).sum(dims), slope.sum(dims)
    return dx, cast(d_weight, weight.dtype), cast(d_bias, weight.dtype)


def slope_and_unit(
    g: Tensor, x: Tensor, dims: tuple[int, ...], eps: float
) -> tuple[Tensor, Tensor]:
    """The gradient for x, from that of x with mean 0 and deviation 1 over dims; and the latter."""
    unit, rstd = _unit(x, dims, eps)
    return _slope_of_unit(g, unit, rstd, dims), unit


def _unit(x: Tensor, dims: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    """x with mean 0 and deviation 1 over dims, and 1 / its deviation."""
    centered = x - mean_op(x, dims, True)
    rstd = rsqrt(mean_op(centered * centered, dims, True) + eps)
    return centered * rstd, rstd


def _slope_of_unit(g: Tensor, unit: Tensor, rstd: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The gradient for x from that of x with mean 0 and deviation 1."""
    return rstd * (g - mean_op(g, dims, True) - unit * mean_op(g * unit, dims, True))


_channel_statistics = several_of(ChannelStatistics(), "x running_mean? running_var? momentum#")
channel_sums = several_of(ChannelSums(), "dy x mean rstd")
_normalized = general(
    Elementwise(
        "batch_normalized",
        kernels.batch_normalized,
        _normalized_vjp,
        passes=(Signature((*(broadcast,) * 3, partial_sum, partial_sum), (partial_sum,)),),
        saves=((0, 1, 2, 3), (), (), (0, 1, 2), ()),
    ).taking(NormalizedAttributes)
)
_slope = general(Elementwise("batch_norm_slope", kernels.batch_norm_slope).taking(SlopeAttributes))


def normalized_by_batch(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """y, and the updated running mean and variance (without running ones, those of the batch)."""
    x = without_partials(x)
    mean, rstd, *moved = _channel_statistics(frozen(x), running_mean, running_var, momentum, eps)
    scale = constant_like(mean, 1) if weight is None else per_channel(weight, x.ndim)
    shift = constant_like(mean, 0) if bias is None else per_channel(bias, x.ndim)
    y = _normalized((x, mean, rstd, scale, shift), eps)
    return y, moved[0], moved[1]


def per_channel(vector: Tensor, ndim: int) -> Tensor:
    """A vector of channels, shaped to broadcast along dim 1 of `ndim` dims."""
    return view(vector, (1, -1, *[1] * (ndim - 2)))
