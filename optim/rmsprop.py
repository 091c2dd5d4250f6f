"""RMSprop: gradients divided by the root of their running mean square."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from ..kernels import rmsprop_ref as kernels
from ..kernels.select import pick
from .coupled_decay import decayed_apart
from .device_scalar import Given
from .optimizer import Group, Optimizer, unique_shards, zeros_for
from .option_checks import check_not_negative


class RMSprop(Optimizer):
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

    def __init__(
        self,
        params: Iterable[Any],
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
    ) -> None:
        check_not_negative("RMSprop", lr=lr, eps=eps, weight_decay=weight_decay, momentum=momentum)
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

    def _update(
        self,
        group: Group,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        given: Given,
    ) -> None:
        for part in decayed_apart(group, params, grads, states, given):
            self._apply(*part)

    def _apply(
        self,
        group: Group,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        given: Given,
    ) -> None:
        kept = self.state_names(group)
        columns = {"params": params, "grads": grads}
        for param, state in zip(params, states, strict=True):
            for key in kept:
                if key not in state:
                    state[key] = zeros_for(param)
        for key in kept:
            columns[key] = [state[key] for state in states]
        for lists in unique_shards(*columns.values()):
            found = dict(zip(columns, lists, strict=True))
            like = found["params"][0]
            update = pick(kernels.rmsprop, like.device.type)
            update(
                found["params"],
                found["grads"],
                found["square_avg"],
                found.get("grad_avg"),
                found.get("momentum_buffer"),
                lr=given.rate(like.device),
                alpha=group["alpha"],
                eps=group["eps"],
                eps_in_root=group["eps_in_root"],
                weight_decay=group["weight_decay"],
                momentum=group["momentum"],
                maximize=group["maximize"],
                **given.on(like),
            )
