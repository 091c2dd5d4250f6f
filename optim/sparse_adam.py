"""SparseAdam: Adam that changes only the elements that have a gradient."""

from __future__ import annotations

from ..engine.tensor import Tensor
from ..kernels import adaptive_rules
from ..kernels.update_rule_ref import Numbers
from .device_scalar import LocalStep
from .optimizer import Group, Params
from .rule_optimizer import RuleOptimizer


class SparseAdam(RuleOptimizer):
    """Kingma and Ba, "Adam" (2015), masked: elements whose gradient is 0 keep value and moments.

    Gradients are dense here, also those of embeddings: rows that a batch does not use have gradient
    0, and stay. The arguments are torch's, and so is the arithmetic for elements with a gradient.
    Raises OnefoldValueError for options that are negative, and for betas that are not in [0, 1).

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> w[0].backward()
    >>> flow.optim.SparseAdam([w], lr=0.5).step()
    >>> w.numpy().round(4)
    array([0.5, 1. ], dtype=float32)
    """

    rule = staticmethod(adaptive_rules.sparse_adam)
    counts_steps = True
    recorded_if_skipped = False
    coupled = False

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("step", "exp_avg", "exp_avg_sq")

    def numbers_at(self, group: Group, at: LocalStep) -> Numbers:
        beta1, beta2 = group["betas"]
        root = (1.0 - beta2**at.step) ** 0.5
        return {
            "lr": at.lr * root / (1.0 - beta1**at.step),
            "one_minus_beta1": 1.0 - beta1,
            "one_minus_beta2": 1.0 - beta2,
            "eps": group["eps"],
        }
