"""RAdam: Adam with smaller first steps, while its mean squares are uncertain."""

from __future__ import annotations

from ..engine.tensor import Tensor
from ..kernels import adaptive_rules
from ..kernels.update_rule_ref import Numbers
from .counted_on_host import CountedOnHost, Kept, decoupled, shrinking
from .device_scalar import LocalStep
from .optimizer import Group, Params
from .torch_options import accept

FEWEST = 5.0  # gradients that a mean square must be worth to be divided by


class RAdam(CountedOnHost):
    """Liu et al., "On the variance of the adaptive learning rate and beyond" (2020).

    The arguments and the arithmetic are torch's. `weight_decay` is added to the gradients, or with
    `decoupled_weight_decay` shrinks the parameters, as AdamW's does. Raises OnefoldValueError for
    options that are negative, and for betas that are not in [0, 1).

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> w.sum().backward()
    >>> flow.optim.RAdam([w], lr=0.5).step()
    >>> w.numpy().round(4)
    array([0.5, 0.5], dtype=float32)
    """

    rule = staticmethod(adaptive_rules.radam)

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        accept("RAdam", foreach=foreach, differentiable=differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "decoupled_weight_decay": decoupled_weight_decay,
                "differentiable": differentiable,
            },
        )

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("step", "exp_avg", "exp_avg_sq")

    def advance(self, group: Group, rate: float, kept: Kept) -> tuple[Kept, Kept]:
        step = int(kept.get("step", 0)) + 1
        return {"step": step} | decoupled(group), {"step": step}

    def numbers_at(self, group: Group, at: LocalStep) -> Numbers:
        (beta1, beta2), step = group["betas"], group["step"]
        correction2 = 1.0 - beta2**step
        most = 2.0 / (1.0 - beta2) - 1.0
        worth = most - 2.0 * step * beta2**step / correction2
        rectify = 1.0
        if worth > FEWEST:
            share = (worth - 4.0) * (worth - 2.0) * most / ((most - 4.0) * (most - 2.0) * worth)
            rectify = (share * correction2) ** 0.5
        return {
            "lr": at.lr / (1.0 - beta1**step),
            "one_minus_beta1": 1.0 - beta1,
            "beta2": beta2,
            "one_minus_beta2": 1.0 - beta2,
            "rectify": rectify,
            "eps": group["eps"],
            "rectified": worth > FEWEST,
            **shrinking(group, at),
        }
