"""RMSprop on lists of local tensors, in place."""

from __future__ import annotations

import torch

from .guarded_update import gradient, put, wide
from .optim_ref import Tensors


def rmsprop(
    params: Tensors,
    grads: Tensors,
    square_avgs: Tensors,
    grad_avgs: Tensors | None,
    momentum_buffers: Tensors | None,
    *,
    lr: float | torch.Tensor,
    alpha: float,
    eps: float,
    eps_in_root: bool,
    weight_decay: float,
    momentum: float,
    maximize: bool,
    scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> None:
    """RMSprop (Tieleman and Hinton, 2012), on tensors of one device and dtype.

    With `grad_avgs` it is centered (Graves, 2013), with `momentum_buffers` it has momentum. `eps`
    stands behind the root, or in it. `lr`, `scale` and `found_inf` as in `optim_ref.adamw`.
    """
    nothing = [None] * len(params)
    columns = (params, grads, square_avgs, grad_avgs or nothing, momentum_buffers or nothing)
    for param, grad, square_avg, grad_avg, buffer in zip(*columns, strict=True):
        p = wide(param)
        g = gradient(grad, scale)
        g = (-g if maximize else g) + weight_decay * p
        square = alpha * wide(square_avg) + (1.0 - alpha) * g * g
        put(square_avg, square, found_inf)
        if grad_avg is not None:
            mean = wide(grad_avg)
            mean = mean + (1.0 - alpha) * (g - mean)
            put(grad_avg, mean, found_inf)
            square = square - mean * mean
        moved = g / ((square + eps).sqrt() if eps_in_root else square.sqrt() + eps)
        if buffer is not None:
            moved = momentum * wide(buffer) + moved
            put(buffer, moved, found_inf)
        put(param, p - lr * moved, found_inf)
