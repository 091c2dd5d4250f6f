"""AdamW: Adam with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ..engine.commit import Write
from ..engine.tensor import Tensor
from ..kernels import update_rules
from ..kernels.optim_ref import by_moments
from ..kernels.update_rule_ref import Numbers
from .device_scalar import LocalStep
from .optimizer import Group, Params
from .rule_optimizer import Lists, RuleOptimizer
from .torch_options import accept


class AdamW(RuleOptimizer):
    """Loshchilov and Hutter, "Decoupled weight decay regularization" (2019).

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> w.sum().backward()
    >>> flow.optim.AdamW([w], lr=0.5).step()
    >>> w.numpy().round(4)
    array([0.5, 0.5], dtype=float32)
    """

    rule = staticmethod(update_rules.adam)
    coupled = False
    counts_steps = True

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        do_bias_correction: bool = True,
        contiguous_params: bool = False,
        fused: bool | None = None,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        accept(type(self).__name__, foreach=foreach, fused=fused, differentiable=differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "do_bias_correction": do_bias_correction,
                "maximize": maximize,
            },
        )

    def state_names(self, group: Group) -> tuple[str, ...]:
        largest = ("max_exp_avg_sq",) if group["amsgrad"] else ()
        return ("step", "exp_avg", "exp_avg_sq", *largest)

    def update_lists(self, group: Group, lists: Lists, at: LocalStep) -> Iterable[Write]:
        if self.has_triton_kernel(lists[0][0]):
            return super().update_lists(group, lists, at)
        return by_moments(
            torch._fused_adam_ if self.is_coupled(group) else torch._fused_adamw_,
            *lists,
            step=at.step if group["do_bias_correction"] else None,
            lr=at.lr,
            betas=group["betas"],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            maximize=group["maximize"],
            scale=at.scale,
            found_inf=at.found_inf,
        )

    def numbers_at(self, group: Group, at: LocalStep) -> Numbers:
        numbers = moments(group, at)
        if not self.is_coupled(group):
            numbers["decay"] = 1.0 - at.lr * group["weight_decay"]
        return numbers


def moments(group: Group, at: LocalStep) -> dict[str, float | torch.Tensor]:
    """The numbers of a step along the moments of gradients, including bias corrections."""
    beta1, beta2 = group["betas"]
    corrected = group["do_bias_correction"]
    inverse1, rsqrt2 = _corrections(at.step, beta1, beta2) if corrected else (1.0, 1.0)
    return {
        "lr": at.lr * inverse1,
        "one_minus_beta1": 1.0 - beta1,
        "beta2": beta2,
        "one_minus_beta2": 1.0 - beta2,
        "bias_correction2_rsqrt": rsqrt2,
        "eps": group["eps"],
    }


def _corrections(
    step: int | torch.Tensor, beta1: float, beta2: float
) -> tuple[float | torch.Tensor, float | torch.Tensor]:
    """1 / bias_correction1 and 1 / sqrt(bias_correction2), the factors of a step."""
    if isinstance(step, torch.Tensor):
        count = step.double()
        return (1.0 - beta1**count).reciprocal(), (1.0 - beta2**count).rsqrt()
    return 1.0 / (1.0 - beta1**step), (1.0 - beta2**step) ** -0.5
