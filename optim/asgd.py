"""ASGD: gradient descent with a decaying rate, and the average of the parameters."""

from __future__ import annotations

from ..engine.tensor import Tensor
from ..kernels import adaptive_rules
from ..kernels.update_rule_ref import Numbers
from .counted_on_host import CountedOnHost, Kept, as_kept
from .device_scalar import LocalStep
from .optimizer import Group, Params
from .torch_options import accept


class ASGD(CountedOnHost):
    """Polyak and Juditsky, "Acceleration of stochastic approximation by averaging" (1992).

    The arguments and the arithmetic are torch's: a step moves by the rate `eta`, which falls as
    lr / (1 + lambd * lr * step) ** alpha, and "ax" in a parameter's state is its average from step
    `t0` on. Raises OnefoldValueError for options that are negative.

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> w.sum().backward()
    >>> flow.optim.ASGD([w], lr=0.5, lambd=0.0).step()
    >>> w.numpy()
    array([0.5, 0.5], dtype=float32)
    """

    rule = staticmethod(adaptive_rules.asgd)
    numbers = frozenset(("step", "eta", "mu"))

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        accept("ASGD", foreach=foreach, differentiable=differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "lambd": lambd,
                "alpha": alpha,
                "t0": t0,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("step", "eta", "mu", "ax")

    def advance(self, group: Group, rate: float, kept: Kept) -> tuple[Kept, Kept]:
        step = int(kept.get("step", 0)) + 1
        used = {"eta": as_kept(kept.get("eta", rate)), "mu": as_kept(kept.get("mu", 1.0))}
        eta = rate / (1.0 + group["lambd"] * rate * step) ** group["alpha"]
        mu = 1.0 / max(1.0, step - group["t0"])
        return used, {"step": step, "eta": as_kept(eta), "mu": as_kept(mu)}

    def numbers_at(self, group: Group, at: LocalStep) -> Numbers:
        eta, mu = group["eta"], group["mu"]
        shrink = 1.0 - group["lambd"] * eta
        return {"eta": eta, "shrink": shrink, "mu": mu, "averaging": mu != 1.0}
