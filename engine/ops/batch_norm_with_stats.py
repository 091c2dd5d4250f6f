"""batch_norm of a batch that no axis splits, in training: one op, which keeps its statistics."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from ...kernels import batch_norm_ref as kernels
from ...kernels.select import uses_triton
from .. import interpreter
from ..dispatcher import several
from ..meta import Meta
from ..op import Kernel, Local, Op
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .reduce import mean
from .unary import rsqrt

S0, S1 = split(0), split(1)


@lru_cache(maxsize=4096)
def takes(x: Meta, weight: Meta, bias: Meta) -> bool:
    """Whether one dtype is used throughout, and no axis splits the batch.

    Triton kernels do the work of the smaller ops, and there is none of this one.
    """
    return (
        x.dtype in (torch.float32, torch.float64)
        and x.dtype is weight.dtype
        and x.dtype is bias.dtype
        and weight.shape == bias.shape == x.shape[1:2]
        and x.numel > 0
        and all(sbp is broadcast or sbp is S1 for sbp in x.nd_sbp)
        and not uses_triton(x.device_type)
    )


class BatchNormWithStats(Op):
    """y; per channel the mean, the unbiased variance and the reciprocal of the deviation"""

    name = "batch_norm_with_stats"
    num_outputs = 4
    saves = (0, 1)
    saves_output = True
    flops_per_element = 6.0

    def infer(self, x: Meta, weight: Meta, bias: Meta, eps: float) -> tuple[Meta, ...]:
        return x, weight, weight, weight

    def rule(self, axis: Axis, x: Meta, weight: Meta, bias: Meta, eps: float) -> Rule:
        return [
            Signature((S1, S0, S0), (S1, S0, S0, S0)),
            Signature(  # linear in weight and bias together
                (broadcast, partial_sum, partial_sum),
                (partial_sum, broadcast, broadcast, broadcast),
            ),
        ]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        (eps,) = attrs
        kernel = local.pick(kernels.batch_norm_with_stats)
        return lambda x, weight, bias: kernel(x, weight, bias, eps)

    @property
    def depends_on_position(self) -> bool:
        return False

    def vjp(
        self,
        needs: Sequence[object],
        dy: tuple[Tensor | None, ...],
        y: tuple[Tensor, ...],
        x: Tensor,
        weight: Tensor,
        bias: Meta,
        eps: float,
    ) -> Any:
        if dy[0] is None:  # the statistics have no gradient
            return None, None, None
        if interpreter.grad_enabled:  # to be differentiated again
            return _gradients(dy[0], x, weight, eps)
        return _batch_norm_with_stats_grad((dy[0], x, weight, y[1], y[3]), eps)


class BatchNormWithStatsGrad(Op):
    """Gradients of batch_norm for x, weight and bias, from kept statistics"""

    name = "batch_norm_with_stats_grad"
    num_outputs = 3
    differentiable = False
    flops_per_element = 12.0

    def infer(
        self, dy: Meta, x: Meta, weight: Meta, mean: Meta, rstd: Meta, eps: float
    ) -> tuple[Meta, ...]:
        return x, weight, weight

    def rule(
        self, axis: Axis, dy: Meta, x: Meta, weight: Meta, mean: Meta, rstd: Meta, eps: float
    ) -> Rule:
        rest = (broadcast,) * 4
        linear = (broadcast, broadcast, partial_sum, broadcast, broadcast)  # in the weight
        return [
            Signature((S1, S1, S0, S0, S0), (S1, S0, S0)),
            Signature((partial_sum, *rest), (partial_sum,) * 3),
            Signature(linear, (partial_sum, broadcast, broadcast)),
        ]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        kernel = local.pick(kernels.batch_norm_with_stats_grad)
        return lambda *tensors: kernel(*tensors, *attrs)

    @property
    def depends_on_position(self) -> bool:
        return False


def _gradients(dy: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, ...]:
    """The same in ops that can be differentiated, the statistics included."""
    dims = (0, *range(2, x.ndim))

    def per_channel(t: Tensor) -> Tensor:
        return mean(t, dims, True)

    centred = x - per_channel(x)
    rstd = rsqrt(per_channel(centred * centred) + eps)
    unit = centred * rstd
    g = dy * weight.reshape(-1, *[1] * (x.ndim - 2))
    dx = rstd * (g - per_channel(g) - unit * per_channel(g * unit))
    return dx, (dy * unit).sum(dims), dy.sum(dims)


batch_norm_with_stats = several(BatchNormWithStats())
_batch_norm_with_stats_grad = several(BatchNormWithStatsGrad())
