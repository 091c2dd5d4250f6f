"""Adam updates for lists of local tensors, in place and in one call."""

from __future__ import annotations

import torch

from .optim_ref import Tensors, by_moments


def adam(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors | None = None,
    *,
    step: int | torch.Tensor | None,
    lr: float | torch.Tensor,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    maximize: bool,
    scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> None:
    """Adam (Kingma and Ba, 2015); `weight_decay` times the parameter is added to its gradient.

    All else as in `optim_ref.adamw`, the numbers that may be on the device too.
    """
    columns = [params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs or []]
    by_moments(
        torch._fused_adam_, columns, step, lr, betas, scale, weight_decay=weight_decay, eps=eps,
        maximize=maximize, found_inf=found_inf,
    )  # fmt: skip
