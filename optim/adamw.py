"""AdamW: Adam with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..engine import interp
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from ..kernels import optim as kernels
from .optimizer import Group, Optimizer, unique_shards, writable, zeros_for


class AdamW(Optimizer):
    """Loshchilov and Hutter, "Decoupled weight decay regularization" (2019).

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> w.sum().backward()
    >>> flow.optim.AdamW([w], lr=0.5).step()
    >>> w.numpy()
    array([0.5, 0.5], dtype=float32)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
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
            if value < 0:
                raise OnefoldValueError(f"AdamW: {name} must be >= 0, but got {value}")
        if not all(0.0 <= beta < 1.0 for beta in betas):
            raise OnefoldValueError(f"AdamW: betas must be in [0, 1), but got {betas}")
        if amsgrad and not do_bias_correction:
            raise OnefoldValueError("AdamW: amsgrad needs do_bias_correction=True")
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

    def _update(self, group: Group, params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        steps: list[torch.Tensor] = []
        for param in params:
            writable(param)
            state = self.state.get(param)
            if state is None:
                state = {"step": 0, "exp_avg": zeros_for(param), "exp_avg_sq": zeros_for(param)}
                if group["amsgrad"]:
                    state["max_exp_avg_sq"] = zeros_for(param)
                self.state[param] = state
            state["step"] += 1
        columns = [
            params,
            grads,
            [self.state[param]["exp_avg"] for param in params],
            [self.state[param]["exp_avg_sq"] for param in params],
        ]
        if group["amsgrad"]:
            columns.append([self.state[param]["max_exp_avg_sq"] for param in params])
        lists = unique_shards(*columns)
        options = {
            "lr": group["lr"] * group.get("lr_scale", 1.0),
            "betas": group["betas"],
            "eps": group["eps"],
            "weight_decay": group["weight_decay"],
            "maximize": group["maximize"],
        }
        if lists[0] and group["do_bias_correction"]:
            steps = self._steps(params)
            highest = lists[4] if group["amsgrad"] else []
            kernels.adamw(*lists[:4], highest, steps, amsgrad=group["amsgrad"], **options)
        elif lists[0]:
            kernels.adamw_uncorrected(*lists, **options)
        for param in params:
            param.version = interp.stamp()

    def _steps(self, params: Sequence[Tensor]) -> list[torch.Tensor]:
        """Each parameter's step count as a tensor, once per distinct shard."""
        steps: list[torch.Tensor] = []
        by_count: dict[int, torch.Tensor] = {}
        for param in params:
            count = self.state[param]["step"]
            if count not in by_count:
                by_count[count] = torch.tensor(float(count))
            steps.extend([by_count[count]] * len({id(part) for part in param.shards}))
        return steps
