"""LARS: momentum with a learning rate per parameter, from the norms of parameter and gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from ..engine.commit import Write
from ..engine.tensor import Tensor
from .device_scalar import LocalStep
from .momentum import Momentum
from .optimizer import Group, Params, Part
from .rule_optimizer import Lists
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

    recorded = False

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.9,
        eps: float = 1e-9,
        lars_coefficient: float = 0.0001,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params, lr, momentum, weight_decay, eps=eps, lars_coefficient=lars_coefficient
        )

    def _extra_columns(self, part: Part) -> list[Sequence[Tensor]]:
        return [tensor_norms(part.params), tensor_norms(part.grads, part.given.scale)]

    def _update_by_rule(
        self, group: Group, lists: Lists, at: LocalStep, copies: list[torch.Tensor] | None = None
    ) -> Iterable[Write]:
        *own, parameters, gradients = lists
        weights, slopes = torch.stack(parameters), torch.stack(gradients)
        below = slopes + group["weight_decay"] * weights + group["eps"]
        share = group["lars_coefficient"] * weights / below
        rates = torch.where((weights > 0) & (slopes > 0), share, 1.0) * at.lr
        return super()._update_by_rule(group, own, at._replace(lr=rates), copies)
