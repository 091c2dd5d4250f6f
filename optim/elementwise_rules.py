"""Rules: optimizers whose update of an element needs that element alone, one class each.

A class says how an element and its state change. The torch reference, the Triton kernel, the form
in graphs, the state's names and layouts, and the optimizer of jobs follow from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch

from ..engine.tensor import Tensor
from ..kernels.update_chain import update_by_rule
from .coupled_decay import decayed_apart
from .device_scalar import Given
from .optimizer import Group, Optimizer, unique_shards, zeros_for
from .option_checks import check_not_negative

__all__ = ["Adadelta"]


class ElementwiseRule(Optimizer):
    """The base of these optimizers.

    `options` are the numbers of the rule besides `lr` and `weight_decay`, with their defaults, and
    `states` the names of what it keeps, which starts as zeros. `weight_decay` is added to the
    gradients. `rule` gives the new parameter and the new states.
    """

    options: ClassVar[dict[str, float]] = {}
    states: ClassVar[tuple[str, ...]] = ()
    rule: ClassVar[Callable[..., tuple[Any, ...]]]

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        *,
        weight_decay: float = 0.0,
        maximize: bool = False,
        **options: float,
    ) -> None:
        who = type(self).__name__
        unknown = set(options) - set(self.options)
        if unknown:
            allowed = ", ".join(["lr", *self.options, "weight_decay", "maximize"])
            raise TypeError(f"{who} has no option {sorted(unknown)[0]!r}; it has {allowed}")
        numbers = {"lr": lr, **self.options, **options, "weight_decay": weight_decay}
        check_not_negative(who, **numbers)
        super().__init__(params, {**numbers, "maximize": maximize})

    def state_names(self, group: Group) -> tuple[str, ...]:
        return self.states

    def _update(
        self,
        group: Group,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        given: Given,
    ) -> None:
        for part in decayed_apart(group, params, grads, states, given):
            self._apply(*part)

    def _apply(
        self,
        group: Group,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        given: Given,
    ) -> None:
        for param, state in zip(params, states, strict=True):
            for key in self.states:
                if key not in state:
                    state[key] = zeros_for(param)
        kept = [[state[key] for state in states] for key in self.states]
        for lists in unique_shards(params, grads, *kept):
            like = lists[0][0]
            numbers = {"lr": given.rate(like.device)}
            numbers.update({key: group[key] for key in self.options})
            numbers["weight_decay"] = group["weight_decay"]
            update_by_rule(
                type(self)._decayed, lists, numbers, maximize=group["maximize"], **given.on(like)
            )

    @classmethod
    def _decayed(cls, p: Any, g: Any, *states: Any, weight_decay: Any, **numbers: Any) -> Any:
        return cls.rule(p, g + weight_decay * p, *states, **numbers)


class Adadelta(ElementwiseRule):
    """Zeiler, "ADADELTA: an adaptive learning rate method" (2012)."""

    options: ClassVar[dict[str, float]] = {"rho": 0.9, "eps": 1e-6}
    states = ("square_avg", "acc_delta")

    @staticmethod
    def rule(
        p: torch.Tensor,
        g: torch.Tensor,
        square_avg: torch.Tensor,
        acc_delta: torch.Tensor,
        *,
        lr: torch.Tensor,
        rho: torch.Tensor,
        eps: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        square_avg = rho * square_avg + (1.0 - rho) * g * g
        delta = torch.sqrt(acc_delta + eps) / torch.sqrt(square_avg + eps) * g
        return p - lr * delta, square_avg, rho * acc_delta + (1.0 - rho) * delta * delta
