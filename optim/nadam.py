"""NAdam: Adam with Nesterov's momentum, which grows with the steps."""

from __future__ import annotations

from ..engine.tensor import Tensor
from ..kernels import adaptive_rules
from ..kernels.update_rule_ref import Numbers
from .counted_on_host import CountedOnHost, Kept, as_kept, decoupled, shrinking
from .device_scalar import LocalStep
from .optimizer import Group, Params
from .torch_options import accept


class NAdam(CountedOnHost):
    """Dozat, "Incorporating Nesterov momentum into Adam" (2016).

    The arguments and the arithmetic are torch's. `weight_decay` is added to the gradients, or with
    `decoupled_weight_decay` shrinks the parameters, as AdamW's does. Raises OnefoldValueError for
    options that are negative, and for betas that are not in [0, 1).

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> w.sum().backward()
    >>> flow.optim.NAdam([w], lr=0.5).step()
    >>> w.numpy().round(3)
    array([0.472, 0.472], dtype=float32)
    """

    rule = staticmethod(adaptive_rules.nadam)
    numbers = frozenset(("step", "mu_product"))

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        accept("NAdam", foreach=foreach, differentiable=differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "momentum_decay": momentum_decay,
                "decoupled_weight_decay": decoupled_weight_decay,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
            },
        )

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("step", "mu_product", "exp_avg", "exp_avg_sq")

    def advance(self, group: Group, rate: float, kept: Kept) -> tuple[Kept, Kept]:
        step = int(kept.get("step", 0)) + 1
        beta1, decay = group["betas"][0], group["momentum_decay"]
        mu, after = (beta1 * (1.0 - 0.5 * 0.96 ** (at * decay)) for at in (step, step + 1))
        product = as_kept(as_kept(kept.get("mu_product", 1.0)) * as_kept(mu))
        used = {
            "step": step,
            "of_gradient": (1.0 - mu) / (1.0 - product),
            "of_average": after / (1.0 - product * after),
        }
        return used | decoupled(group), {"step": step, "mu_product": product}

    def numbers_at(self, group: Group, at: LocalStep) -> Numbers:
        beta1, beta2 = group["betas"]
        return {
            "lr_gradient": at.lr * group["of_gradient"],
            "lr_average": at.lr * group["of_average"],
            "one_minus_beta1": 1.0 - beta1,
            "beta2": beta2,
            "one_minus_beta2": 1.0 - beta2,
            "bias_correction2": 1.0 - beta2 ** group["step"],
            "eps": group["eps"],
            **shrinking(group, at),
        }
