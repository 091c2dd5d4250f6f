"""Momentum that accumulates steps instead of gradients, for lists of local tensors, in place."""

from __future__ import annotations

import torch

from .guarded_update import gradient, put, wide
from .optim_ref import Tensors


def momentum(
    params: Tensors,
    grads: Tensors,
    momentum_buffers: Tensors,
    rates: torch.Tensor,
    *,
    beta: float,
    weight_decay: float,
    scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> None:
    """buffer = beta * buffer - rate * gradient; parameter += buffer - rate * weight_decay * it.

    `rates` has the learning rate of each tensor, in float64 on the device. `scale` and `found_inf`
    as in `optim_ref.adamw`. Source: Loshchilov and Hutter (2019), their SGDW.
    """
    for param, grad, buffer, rate in zip(params, grads, momentum_buffers, rates, strict=True):
        p = wide(param)
        step = rate.to(p.dtype)
        moved = beta * wide(buffer) - step * gradient(grad, scale)
        put(buffer, moved, found_inf)
        put(param, p + moved - step * weight_decay * p, found_inf)
