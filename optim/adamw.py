"""AdamW: Adam with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ..engine.tensor import Tensor
from ..kernels import optim_ref as kernels
from ..kernels.select import pick
from .device_scalar import DeviceScalar, Given
from .optimizer import Group, Optimizer, unique_shards, zeros_for
from .option_checks import check_betas, check_not_negative


class AdamW(Optimizer):
    """Loshchilov and Hutter, "Decoupled weight decay regularization" (2019).

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> w.sum().backward()
    >>> flow.optim.AdamW([w], lr=0.5).step()
    >>> w.numpy().round(4)
    array([0.5, 0.5], dtype=float32)
    """

    kernel: Callable[..., None] = staticmethod(kernels.adamw)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        do_bias_correction: bool = True,
        contiguous_params: bool = False,
        fused: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        who = type(self).__name__
        check_not_negative(who, lr=lr, eps=eps, weight_decay=weight_decay)
        check_betas(who, betas)
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

    def _update(
        self,
        group: Group,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        given: Given,
    ) -> None:
        keys = self._state_keys(group)
        begin(params, states, keys)
        for step, indices in counted(states, given).items():
            columns = [[params[i] for i in indices], [grads[i] for i in indices]]
            columns += [[states[i][key] for i in indices] for key in keys]
            for lists in unique_shards(*columns):
                like = lists[0][0]
                update = pick(self.kernel, like.device.type)
                update(
                    *lists,
                    step=step_on(step, like) if group["do_bias_correction"] else None,
                    lr=given.rate(like.device),
                    betas=group["betas"],
                    eps=group["eps"],
                    weight_decay=group["weight_decay"],
                    maximize=group["maximize"],
                    **given.on(like),
                )

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("step", *self._state_keys(group))

    @staticmethod
    def _state_keys(group: Group) -> tuple[str, ...]:
        largest = ("max_exp_avg_sq",) if group["amsgrad"] else ()
        return ("exp_avg", "exp_avg_sq", *largest)


def begin(params: Sequence[Tensor], states: Sequence[dict[str, Any]], keys: Sequence[str]) -> None:
    """Give the state of each parameter what it lacks: a count of steps, and zeros by `keys`."""
    for param, state in zip(params, states, strict=True):
        state.setdefault("step", 0)
        for key in keys:
            if key not in state:
                state[key] = zeros_for(param)


def counted(entries: Sequence[dict[str, Any]], given: Given) -> dict[int | DeviceScalar, list[int]]:
    """Count a step in the states of parameters; which of them are at each step.

    Those that step alike share the number, so that one on the device serves them all.
    """
    alike: dict[int | DeviceScalar, list[int]] = {}
    for index, entry in enumerate(entries):
        alike.setdefault(entry["step"], []).append(index)
    found = {}
    for done, indices in alike.items():
        step = _next(done, given)
        found[step] = indices
        for index in indices:
            entries[index]["step"] = step
    return found


def _next(done: int | DeviceScalar, given: Given) -> int | DeviceScalar:
    """The number of steps with this one, which does not count where it is skipped."""
    found = given.found_inf
    if isinstance(done, DeviceScalar):
        after = done.value + 1.0
    elif found is None:
        return int(done) + 1
    else:
        after = torch.full_like(found.value, int(done) + 1)
    return DeviceScalar(after if found is None else after - found.on(after.device))


def step_on(step: int | DeviceScalar, like: torch.Tensor) -> int | torch.Tensor:
    """The number of a step as kernels take it that update tensors like this one."""
    return step if isinstance(step, int) else step.on(like.device, torch.float32)
