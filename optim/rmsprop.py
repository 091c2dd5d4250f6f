"""RMSprop: gradients divided by the root of their running mean square."""

from __future__ import annotations

from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from ..kernels import update_rules
from ..kernels.update_rule_ref import Numbers
from .device_scalar import LocalStep
from .optimizer import Group, Params
from .rule_optimizer import RuleOptimizer
from .torch_options import accept


class RMSprop(RuleOptimizer):
    """Tieleman and Hinton, "Lecture 6.5: RMSProp" (2012); `centered` is Graves (2013).

    The arithmetic is torch's, with `weight_decay` added to the gradients. With `eps_in_root` the
    gradient is divided by sqrt(mean square + eps) and not by sqrt(mean square) + eps.

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> w.sum().backward()
    >>> flow.optim.RMSprop([w], lr=0.05).step()
    >>> w.numpy().round(4)
    array([0.5, 0.5], dtype=float32)
    """

    rule = staticmethod(update_rules.rmsprop)

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        contiguous_params: bool = False,
        *,
        maximize: bool = False,
        eps_in_root: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        accept("RMSprop", foreach=foreach, differentiable=differentiable)
        if not 0.0 <= alpha <= 1.0:
            raise OnefoldValueError(f"RMSprop: alpha must be in [0, 1], but got {alpha}")
        super().__init__(
            params,
            {
                "lr": lr,
                "alpha": alpha,
                "eps": eps,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "centered": centered,
                "maximize": maximize,
                "eps_in_root": eps_in_root,
            },
        )

    def state_names(self, group: Group) -> tuple[str, ...]:
        centered = ("grad_avg",) if group["centered"] else ()
        momentum = ("momentum_buffer",) if group["momentum"] else ()
        return ("square_avg", *centered, *momentum)

    def numbers_at(self, group: Group, at: LocalStep) -> Numbers:
        return {
            "lr": at.lr,
            "alpha": group["alpha"],
            "one_minus_alpha": 1.0 - group["alpha"],
            "eps": group["eps"],
            "momentum": group["momentum"],
            "eps_in_root": bool(group["eps_in_root"]),
        }
