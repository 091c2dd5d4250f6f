"""Optimizer updates on lists of local tensors, in place: one call for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch

Tensors = list[torch.Tensor]


def adamw(
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
) -> None:
    """AdamW (Loshchilov and Hutter, 2019), on tensors of one device and dtype.

    `step` counts from 1; None leaves out the bias correction. With `max_exp_avg_sqs` it is
    AMSGrad (Reddi et al., 2018). `step` and `lr` may be 0-d tensors on the device, as `scale` is,
    by which gradients are multiplied first; so a captured graph can be run with other numbers.
    """
    if scale is not None:
        grads = list(torch._foreach_mul(grads, scale))
    if step is None:
        lr = float(lr)
        signed = list(torch._foreach_neg(grads)) if maximize else grads
        torch._foreach_mul_(params, 1 - lr * weight_decay)
        torch._foreach_lerp_(exp_avgs, signed, 1 - betas[0])
        torch._foreach_mul_(exp_avg_sqs, betas[1])
        torch._foreach_addcmul_(exp_avg_sqs, grads, grads, 1 - betas[1])
        largest = exp_avg_sqs
        if max_exp_avg_sqs is not None:
            torch._foreach_maximum_(max_exp_avg_sqs, exp_avg_sqs)
            largest = max_exp_avg_sqs
        denominators = torch._foreach_sqrt(largest)
        torch._foreach_add_(denominators, eps)
        torch._foreach_addcdiv_(params, exp_avgs, denominators, -lr)
        return
    count = torch.as_tensor(step, dtype=torch.float32, device=params[0].device)
    torch._fused_adamw_(
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        max_exp_avg_sqs or [],
        [count] * len(params),
        lr=lr,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=weight_decay,
        eps=eps,
        amsgrad=max_exp_avg_sqs is not None,
        maximize=maximize,
    )


def sgd(
    params: Tensors,
    grads: Tensors,
    momentum_buffers: Tensors,
    *,
    lr: float | torch.Tensor,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    first_step: bool,
    scale: torch.Tensor | None = None,
) -> None:
    """SGD with momentum (Sutskever et al., 2013); on the first step the buffer is the gradient.

    `lr` and `scale` as in `adamw`.
    """
    if scale is not None:
        grads = list(torch._foreach_mul(grads, scale))
    torch._fused_sgd_(
        params,
        grads,
        momentum_buffers if momentum else [],
        weight_decay=weight_decay,
        momentum=momentum,
        lr=lr,
        dampening=dampening,
        nesterov=nesterov,
        maximize=maximize,
        is_first_step=first_step,
    )


def powers(parts: Sequence[torch.Tensor], p: float) -> torch.Tensor:
    """The p-norm of each part to the power p (the greatest magnitude for p = inf), as float64.

    An empty part gives 0. Sums run in float32 for half precision, else in the part's dtype.
    """
    found = torch.zeros(len(parts), dtype=torch.float64, device=parts[0].device)
    for index, part in enumerate(parts):
        if part.numel():
            wide = torch.promote_types(part.dtype, torch.float32)
            norm = torch.linalg.vector_norm(part, p, dtype=wide).double()
            found[index] = norm if p == float("inf") else norm**p
    return found


def flatten(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The parts one after the other in one 1-d tensor."""
    return torch.cat([part.reshape(-1) for part in parts])


def unflatten(flat: torch.Tensor, shapes: Sequence[Sequence[int]]) -> Tensors:
    """Views of `flat` in these shapes, one after the other."""
    parts = flat.split([prod(shape) for shape in shapes])
    return [part.view(tuple(shape)) for part, shape in zip(parts, shapes, strict=True)]
