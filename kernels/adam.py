"""Adam on lists of local tensors, in place: one call for all of them."""

from __future__ import annotations

import torch

from .optim import FAR, Tensors, scaled


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

    All else as in `optim.adamw`, the numbers that may be on the device too.
    """
    late = FAR if step is None else step
    count = torch.as_tensor(late, dtype=torch.float32, device=params[0].device)
    torch._fused_adam_(
        params,
        grads if scale is None else scaled(grads, scale),
        exp_avgs,
        exp_avg_sqs,
        max_exp_avg_sqs or [],
        [count] * len(params),
        # On cuda torch reads a learning rate that is a tensor as float32.
        lr=lr.float() if isinstance(lr, torch.Tensor) and params[0].is_cuda else lr,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=weight_decay,
        eps=eps,
        amsgrad=max_exp_avg_sqs is not None,
        maximize=maximize,
        found_inf=found_inf,
    )
