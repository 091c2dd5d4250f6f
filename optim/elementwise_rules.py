"""Elementwise optimizers: the update of an element needs that element alone. One class each.

A class says how an element and its state change. The torch reference, the Triton kernel, the form
in graphs, the state's names and layouts, and the optimizer of jobs follow from that.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from ..engine.tensor import Tensor
from ..kernels.update_rule_ref import Numbers, states_of
from .device_scalar import LocalStep
from .optimizer import Group, Params
from .rule_optimizer import RuleOptimizer
from .torch_options import accept

__all__ = ["Adadelta"]


class ElementwiseRule(RuleOptimizer):
    """The base of these optimizers.

    `options` are the numbers of the rule besides `lr` and `weight_decay`, with their defaults.
    `weight_decay` is added to the gradients. `rule` gives the new parameter and the new
    states. A state has the name of the rule's argument, and starts as zeros.
    """

    options: ClassVar[dict[str, float]] = {}

    def __init__(
        self,
        params: Params,
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
        super().__init__(params, {**numbers, "maximize": maximize})

    def state_names(self, group: Group) -> tuple[str, ...]:
        return states_of(type(self).rule)

    def numbers_at(self, group: Group, at: LocalStep) -> Numbers:
        return {"lr": at.lr, **{name: group[name] for name in self.options}}


class Adadelta(ElementwiseRule):
    """Zeiler, "ADADELTA: an adaptive learning rate method" (2012)."""

    options: ClassVar[dict[str, float]] = {"rho": 0.9, "eps": 1e-6}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
        contiguous_params: bool = False,
    ) -> None:
        accept("Adadelta", foreach=foreach, differentiable=differentiable)
        numbers = {"rho": rho, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, lr, maximize=maximize, **numbers)

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
