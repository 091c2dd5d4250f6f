"""Groups of channels normalized: two passes forward, and two backward, as of batch norm.

One pass takes the statistics (or the sums of the gradient). An elementwise op does the rest, which
graphs fuse with their neighbors. Both read and write channels-last memory as it lies.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...errors import OnefoldTypeError
from ...kernels import group_norm_ref as kernels
from .. import interpreter
from ..dispatcher import general, several_of
from ..meta import Meta
from ..op import Arg, Gradients, Kernel, Metas, Needs, Op, required
from ..sbp import Sbp, broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..views import frozen
from .arithmetic import add
from .cast import cast, widened
from .channel_norm import SlopeAttributes, over_channels, per_channel, slope_and_unit
from .dims import expand
from .like import constant_like
from .pointwise import Elementwise
from .reduce import is_split_along, mean as mean_op, without_partials
from .unary import rsqrt
from .variance import variance_around
from .view import view


class GroupAttributes(NamedTuple):
    """The number of channels of a group, and the epsilon added to the variance."""

    size: int
    eps: float


class SizeAttributes(NamedTuple):
    """The number of channels of a group."""

    size: int


def whole_groups(axis: Axis, x: Meta, size: int) -> list[Sbp]:
    """How an axis may split samples and groups: no group may be on two ranks."""
    ragged = any(1 in dims for dims in axis.ragged)
    whole = size == 1 or (not ragged and x.shape[1] // size % axis.parts == 0)
    return [split(0), split(1)] if whole else [split(0)]


def of_weights(at: Sbp) -> Sbp:
    """How vectors of channels are split next to such an input."""
    return split(0) if at is split(1) else broadcast


def summed_over(at: Sbp) -> Sbp:
    """How sums over samples are laid out where the input is split."""
    return split(0) if at is split(1) else partial_sum


class GroupStatistics(Op):
    """Mean and 1 / deviation of groups, for each of their channels"""

    name = "group_statistics"
    attributes = GroupAttributes
    kernel = staticmethod(kernels.group_statistics)
    num_outputs = 2
    differentiable = False

    def infer(self, x: Meta, attrs: GroupAttributes) -> tuple[Meta, ...]:
        if not x.is_floating:
            raise OnefoldTypeError(f"group_norm needs a floating point tensor, but got {x.dtype}")
        return (_of_channels(x),) * 2

    def rule(self, axis: Axis, x: Meta, attrs: GroupAttributes) -> Rule:
        return [Signature((at,), (at, at)) for at in whole_groups(axis, x, attrs.size)]

    def decompose(self, metas: Metas, attrs: Arg) -> Kernel | None:
        x = required(metas[0])
        return _over_split if is_split_along(x, tuple(range(2, x.ndim))) else None


def _of_channels(x: Meta) -> Meta:
    """A number for each channel of each sample."""
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    return x.like((*x.shape[:2], *(1,) * (x.ndim - 2)), wide)


def _grouped(x: Tensor, size: int) -> Tensor:
    """(N, groups, size, ...)"""
    return view(x, (x.shape[0], x.shape[1] // size, size, *x.shape[2:]))


def _over_split(x: Tensor, size: int, eps: float) -> tuple[Tensor, ...]:
    """The statistics of split planes, whose ranks exchange two sums."""
    grouped = _grouped(widened(x), size)
    dims = tuple(range(2, grouped.ndim))
    mean = without_partials(mean_op(grouped, dims, True))
    # From the mean, so that a large mean costs no accuracy.
    variance = without_partials(variance_around(grouped, mean, dims, 0.0, True))
    statistics, shape = (mean, rsqrt(add(variance, eps))), _of_channels(x.meta).shape
    repeated = (*mean.shape[:2], size, *mean.shape[3:])
    return tuple([view(expand(each, repeated), shape) for each in statistics])


class GroupSums(Op):
    """The sums of the gradient: two of each group, for its channels; and two of each channel"""

    name = "group_sums"
    attributes = SizeAttributes
    kernel = staticmethod(kernels.group_sums)
    num_outputs = 4
    differentiable = False
    flops_per_element = 4.0

    def infer(self, dy: Meta, x: Meta, mean: Meta, rstd: Meta, *rest: Arg) -> tuple[Meta, ...]:
        of_batch = mean.like((1, *mean.shape[1:]))
        return mean, mean, of_batch, of_batch

    def rule(self, axis: Axis, dy: Meta, x: Meta, mean: Meta, rstd: Meta, *rest: Arg) -> Rule:
        weight, attrs = rest
        one = weight is not None
        found = []
        for at in whole_groups(axis, x, attrs.size):
            # Sums and weights have shape (1, C, 1, ...) here.
            own, sums = (at, at) if at is split(1) else (broadcast, partial_sum)
            found.append(Signature((*(at,) * 4, *(own,) * one), (at, at, sums, sums)))
        dense = (broadcast,) * (2 + one)
        others = [split(d) for d in range(2, x.ndim)]
        found += [Signature((at, at, *dense), (partial_sum,) * 4) for at in others]
        found.append(Signature((partial_sum, broadcast, *dense), (partial_sum,) * 4))
        return found


class NormalizedAttributes(NamedTuple):
    """What the statistics were taken with, and the dtype of the result; None: that of x."""

    size: int
    eps: float
    dtype: torch.dtype | None


def _standardized_vjp(
    needs: Needs,
    dy: Tensor,
    y: Meta,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    attrs: NormalizedAttributes,
) -> Gradients:
    """The statistics get no gradient: it is included in that of x."""
    if interpreter.is_grad_enabled():
        return gradients(dy, x, None, attrs.size, attrs.eps)[0], None, None
    dy = without_partials(dy)
    along, level, _, _ = _group_sums(dy, x, mean, rstd, None, attrs.size)
    sums = without_partials(along), without_partials(level)
    return _standard_slope((x, dy, mean, rstd, *sums), _share(x.meta, attrs.size)), None, None


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
    if interpreter.is_grad_enabled():
        dx, d_weight, d_bias = gradients(dy, x, weight, attrs.size, attrs.eps)
        return dx, None, None, view(d_weight, weight.shape), view(d_bias, bias.shape)
    dy = without_partials(dy)
    along, level, d_weight, d_bias = _group_sums(dy, x, mean, rstd, weight, attrs.size)
    for_x: Tensor | None = None
    if needs[0]:
        sums = without_partials(along), without_partials(level)
        for_x = _group_norm_slope((x, dy, mean, rstd, weight, *sums), _share(x.meta, attrs.size))
    return for_x, None, None, cast(d_weight, weight.dtype), cast(d_bias, bias.dtype)


def _share(x: Meta, size: int) -> float:
    return x.shape[0] * x.shape[1] / max(x.numel * size, 1)


def gradients(
    dy: Tensor, x: Tensor, weight: Tensor | None, size: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of group norm by ops that can be differentiated, statistics included."""
    slope, dims = widened(dy), over_channels(x)
    weighed = slope if weight is None else slope * weight.reshape(1, -1, *[1] * (x.ndim - 2))
    grouped = _grouped(widened(x), size)
    dx, unit = slope_and_unit(_grouped(weighed, size), grouped, tuple(range(2, grouped.ndim)), eps)
    dtype = x.dtype if weight is None else weight.dtype
    sums = (slope * view(unit, x.shape)).sum(dims), slope.sum(dims)
    return cast(view(dx, x.shape), x.dtype), cast(sums[0], dtype), cast(sums[1], dtype)


_group_statistics = several_of(GroupStatistics(), "x")
_group_sums = several_of(GroupSums(), "dy x mean rstd weight?")
_standardized = general(
    Elementwise("standardized", kernels.standardized, _standardized_vjp, saves=(0, 1, 2)).taking(
        NormalizedAttributes
    )
)
_normalized = general(
    Elementwise(
        "group_normalized",
        kernels.group_normalized,
        _normalized_vjp,
        passes=(Signature((*(broadcast,) * 3, partial_sum, partial_sum), (partial_sum,)),),
        saves=(0, 1, 2, 3),
    ).taking(NormalizedAttributes)
)
# These take x first: the result lies in memory as x does, however the gradient lies.
_standard_slope = general(
    Elementwise("standard_slope", kernels.standard_slope).taking(SlopeAttributes)
)
_group_norm_slope = general(
    Elementwise("group_norm_slope", kernels.group_norm_slope).taking(SlopeAttributes)
)


def normalized_by_groups(
    x: Tensor, size: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """Group norm with groups of `size` channels."""
    x = without_partials(x)
    mean, rstd = _group_statistics(frozen(x), size, eps)
    if weight is None and bias is None:
        return _standardized((x, mean, rstd), size, eps, None)
    given = weight if weight is not None else bias
    assert given is not None
    vectors = [constant_like(given, 1) if weight is None else weight]
    vectors.append(constant_like(given, 0) if bias is None else bias)
    return _normalized((x, mean, rstd, *[per_channel(v, x.ndim) for v in vectors]), size, eps, None)
