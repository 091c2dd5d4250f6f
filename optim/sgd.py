"""SGD with momentum, weight decay and Nesterov momentum."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from ..kernels import optim_ref as kernels
from ..kernels.select import pick
from .device_scalar import Given
from .optimizer import Group, Optimizer, unique_shards, zeros_for


class SGD(Optimizer):
    """Stochastic gradient descent; `weight_decay` is L2, added to the gradient.

    The arithmetic is torch's (the momentum buffer starts as the first gradient, undampened).

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> (w * w).sum().backward()
    >>> flow.optim.SGD([w], lr=0.25).step()
    >>> w.numpy()
    array([0.5, 0.5], dtype=float32)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
        contiguous_params: bool = False,
        fused: bool = False,
    ) -> None:
        for name, value in (("lr", lr), ("momentum", momentum), ("weight_decay", weight_decay)):
            if not value >= 0:  # NaN neither
                raise OnefoldValueError(f"SGD: {name} must be >= 0, but got {value}")
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

    def _update(
        self,
        group: Group,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        given: Given,
    ) -> None:
        fresh = [not state for state in states]
        for first in (True, False):
            chosen = [i for i, new in enumerate(fresh) if new is first]
            if chosen:
                some = [params[i] for i in chosen], [grads[i] for i in chosen]
                self._apply(group, *some, [states[i] for i in chosen], given, first)

    def _apply(
        self,
        group: Group,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        given: Given,
        first: bool,
    ) -> None:
        damped = group["momentum"] and group["dampening"]
        if first and damped and given.found_inf is not None and int(given.found_inf):
            # The first gradient is not damped, and only the host knows which one that is. Without
            # dampening a buffer of zeros, which a skipped step leaves, gives the same.
            return
        buffers: Sequence[Tensor] = params
        if group["momentum"]:
            if first:
                for param, state in zip(params, states, strict=True):
                    state["momentum_buffer"] = zeros_for(param)
            buffers = [state["momentum_buffer"] for state in states]
        for lists in unique_shards(params, grads, buffers):
            update = pick(kernels.sgd, lists[0][0].device.type)
            update(
                *lists,
                lr=given.rate(lists[0][0].device),
                momentum=group["momentum"],
                dampening=group["dampening"],
                weight_decay=group["weight_decay"],
                nesterov=group["nesterov"],
                maximize=group["maximize"],
                first_step=first,
                **given.on(lists[0][0]),
            )
