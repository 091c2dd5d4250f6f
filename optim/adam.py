"""Adam, with weight decay added to the gradients."""

from __future__ import annotations

from ..engine.tensor import Tensor
from .adamw import AdamW
from .optimizer import Group, Params


class Adam(AdamW):
    """Kingma and Ba, "Adam: a method for stochastic optimization" (2015).

    The arguments are AdamW's, and `weight_decay` is L2, as torch's Adam has it; with
    `decoupled_weight_decay` it is AdamW's.

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> w.sum().backward()
    >>> flow.optim.Adam([w], lr=0.5).step()
    >>> w.numpy().round(4)
    array([0.5, 0.5], dtype=float32)
    """

    coupled = True

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
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            do_bias_correction,
            contiguous_params,
            fused,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            differentiable=differentiable,
        )
        if decoupled_weight_decay:
            for options in (self.defaults, *self.param_groups):
                options.setdefault("decoupled_weight_decay", True)

    def is_coupled(self, group: Group) -> bool:
        return not group.get("decoupled_weight_decay", False)
