"""Momentum as in OneFlow's job functions, which accumulates steps instead of gradients."""

from __future__ import annotations

from ..engine.tensor import Tensor
from ..kernels import update_rules
from ..kernels.update_rule_ref import Numbers
from .device_scalar import LocalStep
from .optimizer import Group, Params
from .rule_optimizer import RuleOptimizer


class Momentum(RuleOptimizer):
    """SGD and SGDW (Loshchilov and Hutter, 2019) whose momentum includes the learning rate.

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

    rule = staticmethod(update_rules.momentum)
    coupled = False

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        **more: float,
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, **more}
        super().__init__(params, options)

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",)

    def numbers_at(self, group: Group, at: LocalStep) -> Numbers:
        return {"lr": at.lr, "beta": group["momentum"], "decay": group["weight_decay"]}
