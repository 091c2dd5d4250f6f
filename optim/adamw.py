"""AdamW: Adam with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from ..kernels import optim as kernels
from ..kernels.select import pick
from .device_number import DeviceNumber, Given
from .optimizer import Group, Optimizer, rate_of, unique_shards, writable, zeros_for


class AdamW(Optimizer):
    """Loshchilov and Hutter, "Decoupled weight decay regularization" (2019).

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> w.sum().backward()
    >>> flow.optim.AdamW([w], lr=0.5).step()
    >>> w.numpy().round(4)
    array([0.5, 0.5], dtype=float32)
    """

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
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if not value >= 0:  # NaN neither
                raise OnefoldValueError(f"AdamW: {name} must be >= 0, but got {value}")
        if not all(0.0 <= beta < 1.0 for beta in betas):
            raise OnefoldValueError(f"AdamW: betas must be in [0, 1), but got {betas}")
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
        self, group: Group, params: Sequence[Tensor], grads: Sequence[Tensor], given: Given
    ) -> None:
        keys = self._state_keys(group)
        entries = [self._entry(keys, param) for param in params]
        by_step: dict[int | DeviceNumber, list[int]] = {}
        for index, entry in enumerate(entries):
            by_step.setdefault(entry["step"], []).append(index)
        for done, indices in by_step.items():
            step = _counted(done, given)
            chosen = [entries[i] for i in indices]
            columns = [[params[i] for i in indices], [grads[i] for i in indices]]
            columns += [[entry[key] for entry in chosen] for key in keys]
            for entry in chosen:
                entry["step"] = step
            for lists in unique_shards(*columns):
                like = lists[0][0]
                update = pick(kernels.adamw, like.device.type)
                update(
                    *lists,
                    step=_on(step, like) if group["do_bias_correction"] else None,
                    lr=rate_of(group, like.device),
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

    def _entry(self, keys: Sequence[str], param: Tensor) -> dict[str, Any]:
        """The parameter's state, which is made if it has none."""
        writable(param)
        state = self.state.setdefault(param, {"step": 0})
        for key in keys:
            if key not in state:
                state[key] = zeros_for(param)
        return state


def _counted(done: int | DeviceNumber, given: Given) -> int | DeviceNumber:
    """The number of steps with this one, which does not count where it is skipped.

    Parameters that step alike share it, so that one number on the device serves them all.
    """
    found = given.found_inf
    if isinstance(done, DeviceNumber):
        after = done.value + 1.0
    elif found is None:
        return int(done) + 1
    else:
        after = torch.full_like(found.value, int(done) + 1)
    return DeviceNumber(after if found is None else after - found.on(after.device))


def _on(step: int | DeviceNumber, like: torch.Tensor) -> int | torch.Tensor:
    return step if isinstance(step, int) else step.on(like.device, torch.float32)
