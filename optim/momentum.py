"""Momentum as in OneFlow's job functions, which accumulates steps instead of gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..engine.tensor import Tensor
from ..kernels import momentum_ref as kernels
from ..kernels.select import pick
from .device_scalar import Given
from .optimizer import Group, Optimizer, unique_shards, zeros_for
from .option_checks import check_not_negative


class Momentum(Optimizer):
    """SGD and SGDW (Loshchilov and Hutter, 2019) whose momentum has the learning rates in it.

    While the rate is the same this is SGD; once it changes, earlier gradients keep their rates.
    Weight decay is decoupled.

    >>> import onefold as flow
    >>> from onefold.optim.momentum import Momentum
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> w.sum().backward()
    >>> Momentum([w], lr=0.5).step()
    >>> w.numpy()
    array([0.5, 0.5], dtype=float32)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        **more: float,
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, **more}
        check_not_negative(type(self).__name__, **options)
        super().__init__(params, options)

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",)

    def _update(
        self,
        group: Group,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        given: Given,
    ) -> None:
        for param, state in zip(params, states, strict=True):
            if not state:
                state["momentum_buffer"] = zeros_for(param)
        buffers = [state["momentum_buffer"] for state in states]
        numbers = self._numbers(params, grads, given)
        for lists in unique_shards(params, grads, buffers, *numbers):
            like = lists[0][0]
            beside = [torch.stack(column) for column in lists[3:]]
            ones = torch.ones(len(lists[0]), dtype=torch.float64, device=like.device)
            update = pick(kernels.momentum, like.device.type)
            update(
                *lists[:3],
                self._shares(group, ones, beside) * given.rate(like.device),
                beta=group["momentum"],
                weight_decay=group["weight_decay"],
                **given.on(like),
            )

    def _numbers(
        self, params: Sequence[Tensor], grads: Sequence[Tensor], given: Given
    ) -> list[list[Tensor]]:
        """Columns of 0-d tensors, beside each shard, which `_shares` needs."""
        return []

    def _shares(
        self, group: Group, ones: torch.Tensor, numbers: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """What each tensor's rate is of the group's; `numbers` has a vector for each column."""
        return ones
