"""LARS on lists of local tensors, in place."""

from __future__ import annotations

import torch

from .guarded import gradient, put, wide
from .optim import Tensors


def lars(
    params: Tensors,
    grads: Tensors,
    momentum_buffers: Tensors,
    rates: torch.Tensor,
    *,
    momentum: float,
    weight_decay: float,
    scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> None:
    """LARS (You et al., 2017), on tensors of one device and dtype.

    `rates` has each tensor's learning rate, float64 on the device, which is for the caller to find
    since it needs norms over all shards. `scale` and `found_inf` as in `optim.adamw`.
    """
    for param, grad, buffer, rate in zip(params, grads, momentum_buffers, rates, strict=True):
        p = wide(param)
        step = rate.to(p.dtype)
        moved = momentum * wide(buffer) - step * gradient(grad, scale)
        put(buffer, moved, found_inf)
        put(param, p + moved - step * weight_decay * p, found_inf)
