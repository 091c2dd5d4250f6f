"""SGD with momentum, weight decay and Nesterov momentum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..engine.commit import Write
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from ..kernels import optim_ref, update_rules
from ..kernels.update_rule_ref import Numbers
from .device_scalar import DeviceScalar, LocalStep
from .optimizer import Group, Params, Part
from .rule_optimizer import Lists, RuleOptimizer
from .torch_options import accept


class SGD(RuleOptimizer):
    """Stochastic gradient descent; `weight_decay` is L2, added to the gradient.

    The arithmetic is torch's (the momentum buffer starts as the first gradient, undampened).

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> (w * w).sum().backward()
    >>> flow.optim.SGD([w], lr=0.25).step()
    >>> w.numpy()
    array([0.5, 0.5], dtype=float32)
    """

    rule = staticmethod(update_rules.sgd)
    linear = True

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
        contiguous_params: bool = False,
        fused: bool | None = None,
        *,
        foreach: bool | None = None,
        differentiable: bool = False,
    ) -> None:
        accept("SGD", foreach=foreach, fused=fused, differentiable=differentiable)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise OnefoldValueError("SGD: Nesterov momentum requires momentum > 0 and dampening 0")
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
            },
        )

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def _steps(self, part: Part) -> Mapping[int | DeviceScalar, list[int]]:
        """The first step, which is 1, and all later ones."""
        found: dict[int | DeviceScalar, list[int]] = {}
        for index, state in enumerate(part.states):
            found.setdefault(2 if state else 1, []).append(index)
        damped, skipped = part.group["momentum"] and part.group["dampening"], part.given.found_inf
        if 1 in found and damped and skipped is not None and int(skipped):
            # The first gradient is not damped, and only the host knows which one that is. Without
            # dampening a buffer of zeros, which a skipped step leaves, gives the same.
            del found[1]
        return found

    def update_lists(self, group: Group, lists: Lists, at: LocalStep) -> Iterable[Write]:
        if self.has_triton_kernel(lists[0][0]):
            return super().update_lists(group, lists, at)
        return optim_ref.sgd(
            *lists,
            lr=at.lr,
            momentum=group["momentum"],
            dampening=group["dampening"],
            weight_decay=group["weight_decay"],
            nesterov=group["nesterov"],
            maximize=group["maximize"],
            first_step=_is_first(at),
            scale=at.scale,
            found_inf=at.found_inf,
        )

    def numbers_at(self, group: Group, at: LocalStep) -> Numbers:
        return {
            "lr": at.lr,
            "momentum": group["momentum"],
            "one_minus_dampening": 1.0 - group["dampening"],
            "nesterov": bool(group["nesterov"]),
            "first": _is_first(at),
        }


def _is_first(at: LocalStep) -> bool:
    return isinstance(at.step, int) and at.step == 1
