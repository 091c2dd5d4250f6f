"""LARS: each parameter's rate follows from its norm and its gradient's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..engine import interp
from ..engine.tensor import Tensor
from ..kernels import lars as kernels
from ..kernels.select import pick
from .checks import check_not_negative
from .device_number import Given
from .optimizer import Group, Optimizer, rate_of, unique_shards, writable, zeros_for
from .tensor_norms import tensor_norms


class LARS(Optimizer):
    """You, Gitman and Ginsburg, "Large batch training of convolutional networks" (2017).

    A parameter's own rate is lr * lars_coefficient * |w| / (|g| + weight_decay * |w| + eps), and lr
    where a norm is 0. The norms are those of the logical tensors, over all their shards. The
    momentum takes gradients times that rate; weight decay is decoupled, as OneFlow has it.

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(4))
    >>> w.sum().backward()
    >>> flow.optim.LARS([w], lr=0.5, lars_coefficient=1.0).step()
    >>> w.numpy()
    array([0.5, 0.5, 0.5, 0.5], dtype=float32)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        momentum: float = 0.9,
        eps: float = 1e-9,
        lars_coefficient: float = 0.0001,
        weight_decay: float = 0.0,
    ) -> None:
        options = {
            "lr": lr,
            "momentum": momentum,
            "eps": eps,
            "lars_coefficient": lars_coefficient,
            "weight_decay": weight_decay,
        }
        check_not_negative("LARS", **options)
        super().__init__(params, options)

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",)

    def _update(
        self, group: Group, params: Sequence[Tensor], grads: Sequence[Tensor], given: Given
    ) -> None:
        for param in params:
            writable(param)
            if param not in self.state:
                self.state[param] = {"momentum_buffer": zeros_for(param)}
        buffers = [self.state[param]["momentum_buffer"] for param in params]
        norms = [tensor_norms(params), tensor_norms(grads, given.scale)]
        for *lists, weights, gradients in unique_shards(params, grads, buffers, *norms):
            like = lists[0][0]
            update = pick(kernels.lars, like.device.type)
            update(
                *lists,
                _rates(group, torch.stack(weights), torch.stack(gradients)),
                momentum=group["momentum"],
                weight_decay=group["weight_decay"],
                **given.on(like),
            )
        for param in params:
            param.version = interp.stamp()


def _rates(group: Group, weights: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """Each tensor's own rate, from its norm and its gradient's."""
    below = gradients + group["weight_decay"] * weights + group["eps"]
    trust = group["lars_coefficient"] * weights / below
    return torch.where((weights > 0) & (gradients > 0), trust, 1.0) * rate_of(group, weights.device)
