"""group_norm, and instance_norm, whose groups are single channels.

On the CPU torch has one function; where Triton does the work, `channel_groups` has two ops.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from ...errors import OnefoldValueError, ShapeError
from ...kernels import group_norm_ref as kernels
from ...kernels.select import uses_triton
from .. import interpreter
from ..dispatcher import several_of
from ..inplace import assign_result
from ..meta import Meta
from ..names import register_function
from ..op import Arg, Gradients, Needs, Op
from ..sbp import broadcast, partial_sum
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..views import frozen
from .batch_norm import batch_norm
from .cast import widened
from .channel_groups import (
    GroupAttributes,
    SizeAttributes,
    gradients,
    normalized_by_groups,
    of_weights,
    summed_over,
    whole_groups,
)
from .device_transfer import to
from .reduce import is_split_along, mean as mean_op, without_partials


@lru_cache(maxsize=4096)
def takes(x: Meta, *vectors: Meta) -> bool:
    """Whether torch does the work, x has the dtype of all vectors, and no axis splits planes."""
    return (
        x.dtype in (torch.float32, torch.float64)
        and len(vectors) != 1  # torch's gradient has both or none
        and all((v.dtype, v.shape) == (x.dtype, x.shape[1:2]) for v in vectors)
        and not is_split_along(x, tuple(range(2, x.ndim)))
        and not uses_triton(x.device_type)
    )


class GroupNormWithStats(Op):
    """y; of each group the mean and 1 / deviation"""

    name = "group_norm_with_stats"
    attributes = GroupAttributes
    order = "row-major"
    kernel = staticmethod(kernels.group_norm_with_stats)
    num_outputs = 3
    saves = (0, 1)
    saves_output = (1, 2)
    one_gradient = True
    flops_per_element = 6.0

    def infer(self, x: Meta, weight: Meta | None, bias: Meta | None, attrs: Arg) -> Arg:
        groups = x.like((x.shape[0], x.shape[1] // attrs.size))
        return x, groups, groups

    def rule(self, axis: Axis, x: Meta, weight: Meta | None, bias: Meta | None, attrs: Arg) -> Rule:
        count = 2 - (weight, bias).count(None)
        found = [
            Signature((at, *(of_weights(at),) * count), (at,) * 3)
            for at in whole_groups(axis, x, attrs.size)
        ]
        if count:  # linear in weight and bias together
            linear = (broadcast, *(partial_sum,) * count)
            found.append(Signature(linear, (partial_sum, broadcast, broadcast)))
        return found

    def vjp(
        self,
        needs: Needs,
        dy: tuple[Tensor | None, ...],
        y: tuple[Tensor, ...],
        x: Tensor,
        weight: Tensor | None,
        *rest: Arg,
    ) -> Gradients:
        assert dy[0] is not None  # the statistics have no gradient
        size, eps = rest[-1]
        if interpreter.is_grad_enabled():  # to be differentiated again
            found: Gradients = gradients(dy[0], x, weight, size, eps)
        else:
            found = _group_norm_with_stats_grad(dy[0], x, weight, y[1], y[2], size)
        return found if weight is not None else (found[0], None, None)


class GroupNormWithStatsGrad(Op):
    """Gradients of group norm for x, weight and bias, from kept statistics"""

    name = "group_norm_with_stats_grad"
    attributes = SizeAttributes
    order = "row-major"
    kernel = staticmethod(kernels.group_norm_with_stats_grad)
    num_outputs = 3
    differentiable = False
    flops_per_element = 12.0

    def infer(self, dy: Meta, x: Meta, weight: Meta | None, *rest: Arg) -> Arg:
        vector = weight or x.like(x.shape[1:2])
        return x, vector, vector

    def rule(self, axis: Axis, dy: Meta, x: Meta, weight: Meta | None, *rest: Arg) -> Rule:
        one = weight is not None
        found = [
            Signature((at, at, *(of_weights(at),) * one, at, at), (at, *(summed_over(at),) * 2))
            for at in whole_groups(axis, x, rest[-1].size)
        ]
        whole = (broadcast,) * (2 + one)
        found.append(Signature((partial_sum, broadcast, *whole), (partial_sum,) * 3))
        if one:
            linear = (broadcast, broadcast, partial_sum, broadcast, broadcast)
            found.append(Signature(linear, (partial_sum, broadcast, broadcast)))
        return found


group_norm_with_stats = several_of(GroupNormWithStats(), "x weight? bias?", only_first=True)
_group_norm_with_stats_grad = several_of(GroupNormWithStatsGrad(), "dy x weight? mean rstd")


def _by_groups(
    x: Tensor, size: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    if takes(x.meta, *[v.meta for v in (weight, bias) if v is not None]):
        y: Tensor = group_norm_with_stats(x, weight, bias, size, eps)[0]
        return y
    return normalized_by_groups(x, size, weight, bias, eps)


@register_function
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize groups of channels of each sample, then scale and shift per channel, as in torch.

    Raises OnefoldValueError when the channels do not divide into the groups.

    Example: `group_norm(x, 2, w, b)` with x (8, 4, 5, 5) and vectors of 4.
    """
    if input.ndim < 2:
        raise ShapeError(f"group_norm needs (N, C, ...), but got shape {tuple(input.shape)}")
    channels = input.shape[1]
    if num_groups <= 0 or channels % num_groups:
        raise OnefoldValueError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {tuple(input.shape)} and num_groups={num_groups}"
        )
    return _by_groups(input, channels // num_groups, weight, bias, eps)


@register_function
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel of each sample by its own statistics, then scale and shift, as torch.

    The running statistics, where given, are updated in place by the means over the batch; without
    `use_input_stats` they are what the input is normalized by. Raises OnefoldValueError when a
    channel has one value only, or when statistics are missing.

    Example: `instance_norm(x)` with x (8, 4, 5, 5).
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    rest = tuple(input.shape[2:])
    if rest.count(1) == len(rest):
        raise OnefoldValueError(
            "Expected more than 1 spatial element when training, got input size "
            f"{tuple(input.shape)}"
        )
    if 0 not in rest and (running_mean is not None or running_var is not None):
        wide, planes = widened(frozen(input)), tuple(range(2, input.ndim))
        mean, variance = mean_op(wide, planes), wide.var(planes)
        for running, now in ((running_mean, mean), (running_var, variance)):
            if running is not None:
                now = without_partials(mean_op(now, 0))
                assign_result(running, "lerp", to(now, running.dtype), momentum)
    return _by_groups(input, 1, weight, bias, eps)
