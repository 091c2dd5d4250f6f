"""Adagrad: gradients divided by the root of the sum of their squares."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.tensor import Tensor
from ..kernels import adaptive_rules
from ..kernels.update_rule_ref import Numbers
from .device_scalar import LocalStep
from .full_state import full_for
from .optimizer import Group, Params, Part
from .rule_optimizer import RuleOptimizer
from .torch_options import accept


class Adagrad(RuleOptimizer):
    """Duchi, Hazan and Singer, "Adaptive subgradient methods" (2011).

    The arithmetic is torch's, the default rate OneFlow's. Raises OnefoldValueError for options
    that are negative.

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> w.sum().backward()
    >>> flow.optim.Adagrad([w], lr=0.5).step()
    >>> w.numpy().round(4)
    array([0.5, 0.5], dtype=float32)
    """

    rule = staticmethod(adaptive_rules.adagrad)
    counts_steps = True
    recorded_if_skipped = False

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        contiguous_params: bool = False,
    ) -> None:
        accept("Adagrad", foreach=foreach, fused=fused, differentiable=differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "lr_decay": lr_decay,
                "eps": eps,
                "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "fused": fused,
            },
        )

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("step", "sum")

    def _begin(self, part: Part, keys: Sequence[str]) -> None:
        for param, state in zip(part.params, part.states, strict=True):
            if "sum" not in state:
                state["sum"] = full_for(param, part.group["initial_accumulator_value"])

    def numbers_at(self, group: Group, at: LocalStep) -> Numbers:
        return {"lr": at.lr / (1.0 + (at.step - 1) * group["lr_decay"]), "eps": group["eps"]}
