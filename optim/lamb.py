"""LAMB: Adam's direction, scaled by the norm of the parameter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..engine.tensor import Tensor
from ..kernels import lamb_ref as kernels
from ..kernels.select import pick
from .adamw import begin, counted, step_on
from .device_scalar import DeviceScalar, Given
from .optimizer import Group, Optimizer, unique_shards, zeros_for
from .option_checks import check_betas, check_not_negative
from .tensor_norms import tensor_norms


class LAMB(Optimizer):
    """You et al., "Large batch optimization for deep learning: training BERT in 76 minutes" (2020).

    A parameter moves by lr * |w| / |u| * u, where u is AdamW's direction, its weight decay in it;
    by lr * u where a norm is 0. The norms are those of the logical tensors, over all their shards.

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(4) * 2)
    >>> w.sum().backward()
    >>> flow.optim.LAMB([w], lr=0.5).step()
    >>> w.numpy()
    array([1., 1., 1., 1.], dtype=float32)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        do_bias_correction: bool = True,
        contiguous_params: bool = False,
    ) -> None:
        check_not_negative("LAMB", lr=lr, eps=eps, weight_decay=weight_decay)
        check_betas("LAMB", betas)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "do_bias_correction": do_bias_correction,
            },
        )

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("step", "exp_avg", "exp_avg_sq")

    def _update(
        self,
        group: Group,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        given: Given,
    ) -> None:
        begin(params, states, ("exp_avg", "exp_avg_sq"))
        directions = [zeros_for(param) for param in params]
        for step, indices in counted(states, given).items():
            columns = [[x[i] for i in indices] for x in (params, grads)]
            for key in ("exp_avg", "exp_avg_sq"):
                columns.append([states[i][key] for i in indices])
            columns.append([directions[i] for i in indices])
            self._direct(group, columns, step, given)
        norms = [tensor_norms(params), tensor_norms(directions)]
        for *lists, weights, lengths in unique_shards(params, directions, *norms):
            like = lists[0][0]
            update = pick(kernels.move, like.device.type)
            rates = _rates(given, torch.stack(weights), torch.stack(lengths))
            update(*lists, rates, found_inf=given.on(like)["found_inf"])

    def _direct(
        self,
        group: Group,
        columns: Sequence[Sequence[Tensor]],
        step: int | DeviceScalar,
        given: Given,
    ) -> None:
        for lists in unique_shards(*columns):
            like = lists[0][0]
            update = pick(kernels.directions, like.device.type)
            update(
                *lists,
                step=step_on(step, like) if group["do_bias_correction"] else None,
                betas=group["betas"],
                eps=group["eps"],
                weight_decay=group["weight_decay"],
                **given.on(like),
            )


def _rates(given: Given, weights: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Each tensor's own rate, from its norm and that of its direction."""
    trust = torch.where((weights > 0) & (lengths > 0), weights / lengths, 1.0)
    return trust * given.rate(weights.device)
