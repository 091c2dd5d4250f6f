"""batch_norm over the whole logical batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

from ...errors import OnefoldValueError, ShapeError
from ...kernels import batch_norm_ref as kernels
from ...kernels.select import uses_triton
from .. import interpreter
from ..dispatcher import several_of
from ..inplace import assign_result, set_result
from ..meta import Meta
from ..names import register_function
from ..op import Arg, Gradients, Needs, Op
from ..out_tensors import give_to
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..views import frozen
from .arithmetic import add, mul, neg, sub
from .cast import narrowed, widened
from .channel_norm import (
    channel_sums,
    gradients,
    normalized_by_batch,
    over_channels,
    per_channel,
)
from .device_transfer import to
from .elementwise_nary import addcmul
from .like import constant_like, new_empty, new_zeros
from .reduce import mean as mean_op, sum
from .unary import rsqrt
from .view import view


@lru_cache(maxsize=4096)
def takes(x: Meta, *vectors: Meta) -> bool:
    """Whether x has the dtype of all vectors of channels, and no axis splits the batch.

    For these torch has one function. Elsewhere, and where Triton does the work, `channel_norm` has
    two ops.
    """
    return (
        x.ndim > 1
        and x.dtype in (torch.float32, torch.float64)
        and all((v.dtype, v.shape) == (x.dtype, x.shape[1:2]) for v in vectors)
        and x.numel > x.shape[1]  # several values per channel
        and all(sbp is broadcast or sbp is split(1) for sbp in x.nd_sbp)
        and not uses_triton(x.device_type)
    )


class BatchNormAttributes(NamedTuple):
    """The momentum of the running statistics, and the epsilon added to the variance."""

    momentum: float
    eps: float


class BatchNormWithStats(Op):
    """y; running statistics moved towards those of the batch, or those; mean and 1 / deviation"""

    name = "batch_norm_with_stats"
    attributes = BatchNormAttributes
    order = "row-major"
    kernel = staticmethod(kernels.batch_norm_with_stats)
    num_outputs = 5
    like = (0, 1, 1, 1, 1)
    saves = ((0, 1), (0,), ())
    saves_output = ((3, 4), (3, 4), ())
    one_gradient = True
    flops_per_element = 6.0

    def rule(
        self, axis: Axis, x: Meta, weight: Meta, bias: Meta, running: Meta | None, *rest: Arg
    ) -> Rule:
        count = 0 if running is None else 2
        vector, whole = split(0), (broadcast,) * count
        linear = (broadcast, partial_sum, partial_sum)  # in weight and bias together
        return [
            Signature((split(1), *(vector,) * (2 + count)), (split(1), *(vector,) * 4)),
            Signature((*linear, *whole), (partial_sum, *(broadcast,) * 4)),
        ]

    def vjp(
        self,
        needs: Needs,
        dy: tuple[Tensor | None, ...],
        y: tuple[Tensor, ...],
        x: Tensor,
        weight: Tensor,
        *rest: Arg,
    ) -> Gradients:
        assert dy[0] is not None  # the statistics have no gradient
        eps = rest[-1].eps
        if not needs[0] and not needs[1]:
            return None, None, sum(dy[0], over_channels(x))
        if interpreter.is_grad_enabled():  # to be differentiated again
            return gradients(needs[0], dy[0], x, weight, eps)
        if not needs[0]:
            statistics = [per_channel(v, x.ndim) for v in y[3:]]
            along, level = channel_sums(dy[0], x, *statistics)
            return None, view(along, weight.shape), view(level, weight.shape)
        return _batch_norm_with_stats_grad(dy[0], x, weight, y[3], y[4], eps)


class BatchNormGradAttributes(NamedTuple):
    """The epsilon added to the variance."""

    eps: float


class BatchNormWithStatsGrad(Op):
    """Gradients of batch_norm for x, weight and bias, from kept statistics"""

    name = "batch_norm_with_stats_grad"
    attributes = BatchNormGradAttributes
    order = "row-major"
    kernel = staticmethod(kernels.batch_norm_with_stats_grad)
    num_outputs = 3
    like = (1, 2, 2)
    differentiable = False
    flops_per_element = 12.0
    spec = "n* c, n* c, c, c, c -> n* c, c, c"
    linear = "0"

    def rule(self, axis: Axis, *args: Arg) -> Rule:
        linear = (broadcast, broadcast, partial_sum, broadcast, broadcast)  # in the weight
        return [*super().rule(axis), Signature(linear, (partial_sum, broadcast, broadcast))]


batch_norm_with_stats = several_of(BatchNormWithStats(), "x weight bias running_mean? running_var?")
_batch_norm_with_stats_grad = several_of(BatchNormWithStatsGrad(), "dy x weight mean rstd")


@register_function
def batch_norm_train(
    input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize by the statistics of the whole batch; (y, mean, unbiased variance), per channel.

    The functional form for modules that keep running statistics. A batch that is split over ranks
    gives the same numbers: two sums per channel are exchanged. Raises OnefoldValueError when a
    channel has fewer than two values.

    Example: `y, mean, variance = batch_norm_train(x)` with x (8, 3, 4, 4).
    """
    return _by_batch(input, weight, bias, None, None, 1.0, eps)


def _by_batch(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """y, and the updated running mean and variance (without running ones, those of the batch)."""
    if input.ndim < 2:
        raise ShapeError(f"batch_norm needs (N, C, ...), but got shape {tuple(input.shape)}")
    count = input.numel() // input.shape[1] if input.shape[1] else 0
    if count == 1:
        raise OnefoldValueError(
            "Expected more than 1 value per channel when training, got input size "
            f"{tuple(input.shape)}"
        )
    given = [v for v in (weight, bias, running_mean, running_var) if v is not None]
    if takes(input.meta, *[v.meta for v in given]):
        vector = given[0] if given else new_zeros(input, input.shape[1])
        scale = constant_like(vector, 1) if weight is None else weight
        shift = constant_like(vector, 0) if bias is None else bias
        y, mean, variance, _, _ = batch_norm_with_stats(
            input, scale, shift, running_mean, running_var, momentum, eps
        )
        return y, mean, variance
    return normalized_by_batch(input, weight, bias, running_mean, running_var, momentum, eps)


@register_function
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel, as in torch: by the batch in training, else by running statistics.

    In training the running statistics, where given, are updated in place, with the unbiased
    variance; a batch without elements leaves them. The batch is the whole logical batch, however it
    is split. Raises OnefoldValueError without running statistics outside training, or for one value
    per channel in training.

    Example: `batch_norm(x, mean, variance, w, b)` with x (8, 3, 4, 4) and vectors of 3.
    """
    if training:
        if 0 in input.shape:
            return _by_batch(input, weight, bias, None, None, 1.0, eps)[0]
        if running_mean is not None and running_var is not None:
            y, mean, variance = _by_batch(
                input, weight, bias, running_mean, running_var, momentum, eps
            )
            set_result(running_mean, mean, "batch_norm")
            set_result(running_var, variance, "batch_norm")
            return y
        y, mean, variance = _by_batch(input, weight, bias, None, None, 1.0, eps)
        for running, now in ((running_mean, mean), (running_var, variance)):
            if running is not None:
                assign_result(running, "lerp", to(now, running.dtype), momentum)
        return y
    if running_mean is None or running_var is None:
        raise OnefoldValueError(
            "Expected running_mean and running_var to be defined when training=False"
        )
    # Small arithmetic on the channels first, so that the input is passed over only once.
    scale = rsqrt(add(widened(running_var), eps))
    if weight is not None:
        scale = mul(scale, weight)
    shift = mul(running_mean, scale)
    shift = neg(shift) if bias is None else sub(bias, shift)
    scale, shift = (per_channel(v, input.ndim) for v in (scale, shift))
    return narrowed(addcmul(shift, input, scale), input.dtype)


@register_function
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(`batch_norm`, the mean of each channel, 1 / its deviation); of no elements if not training.

    Gradients flow through the first alone.
    """
    if out is not None:
        return give_to(
            out,
            native_batch_norm(
                input, weight, bias, running_mean, running_var, training, momentum, eps
            ),
        )
    y = batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        return y, new_empty(input, 0), new_empty(input, 0)
    wide, dims = widened(frozen(input)), (0, *range(2, input.ndim))
    return y, mean_op(wide, dims), rsqrt(add(wide.var(dims, correction=0), eps))
