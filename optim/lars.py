"""LARS: momentum with a learning rate per parameter, from the norms of parameter and gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..engine.tensor import Tensor
from .device_scalar import Given
from .momentum import Momentum
from .optimizer import Group
from .tensor_norms import tensor_norms


class LARS(Momentum):
    """You, Gitman and Ginsburg, "Large batch training of convolutional networks" (2017).

    A parameter's own rate is lr * lars_coefficient * |w| / (|g| + weight_decay * |w| + eps), and lr
    where a norm is 0. The norms are those of the logical tensors, over all their shards. The
    momentum has the rates in it, and weight decay is decoupled, as OneFlow has both.

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
        super().__init__(
            params, lr, momentum, weight_decay, eps=eps, lars_coefficient=lars_coefficient
        )

    def _numbers(
        self, params: Sequence[Tensor], grads: Sequence[Tensor], given: Given
    ) -> list[list[Tensor]]:
        return [tensor_norms(params), tensor_norms(grads, given.scale)]

    def _shares(
        self, group: Group, ones: torch.Tensor, numbers: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        weights, gradients = numbers
        below = gradients + group["weight_decay"] * weights + group["eps"]
        share = group["lars_coefficient"] * weights / below
        return torch.where((weights > 0) & (gradients > 0), share, ones)
