"""Adamax: Adam with a decaying maximum of the gradients instead of their mean square."""

from __future__ import annotations

from ..engine.tensor import Tensor
from ..kernels import adaptive_rules
from ..kernels.update_rule_ref import Numbers
from .device_scalar import LocalStep
from .optimizer import Group, Params
from .rule_optimizer import RuleOptimizer
from .torch_options import accept


class Adamax(RuleOptimizer):
    """Kingma and Ba, "Adam: a method for stochastic optimization" (2015), section 7.1.

    The arguments and the arithmetic are torch's. Raises OnefoldValueError for options that are
    negative, and for betas that are not in [0, 1).

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> w.sum().backward()
    >>> flow.optim.Adamax([w], lr=0.5).step()
    >>> w.numpy().round(4)
    array([0.5, 0.5], dtype=float32)
    """

    rule = staticmethod(adaptive_rules.adamax)
    counts_steps = True
    recorded_if_skipped = False

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        accept("Adamax", foreach=foreach, differentiable=differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("step", "exp_avg", "exp_inf")

    def numbers_at(self, group: Group, at: LocalStep) -> Numbers:
        beta1, beta2 = group["betas"]
        return {
            "lr": at.lr / (1.0 - beta1**at.step),
            "one_minus_beta1": 1.0 - beta1,
            "beta2": beta2,
            "eps": group["eps"],
        }
