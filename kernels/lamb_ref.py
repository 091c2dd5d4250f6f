"""LAMB's directions for lists of local tensors, and their moments, in place."""

from __future__ import annotations

import torch

from .guarded_update import gradient, put, wide
from .optim_ref import Tensors


def directions(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    found: Tensors,
    *,
    step: int | torch.Tensor | None,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> None:
    """Update the moments, and write each parameter's direction into `found`.

    That of LAMB (You et al., 2020), with decoupled weight decay. `step` counts from 1; None leaves
    out the bias correction. `step`, `scale` and `found_inf` as in `optim_ref.by_moments`.
    """
    # The rule in `update_rules` multiplies by the inverse of the bias corrections, which rounds
    # otherwise than dividing by them: losses of runs on the CPU would change in their last bits.
    first, second = betas
    biases: tuple[float | torch.Tensor, float | torch.Tensor] = (1.0, 1.0)
    if step is not None:
        count = step.double() if isinstance(step, torch.Tensor) else step
        biases = (1.0 - first**count, 1.0 - second**count)
    columns = (params, grads, exp_avgs, exp_avg_sqs, found)
    for param, grad, average, square, direction in zip(*columns, strict=True):
        g = gradient(grad, scale)
        m = wide(average)
        m = m + (1.0 - first) * (g - m)
        v = second * wide(square) + (1.0 - second) * g * g
        put(average, m, found_inf)
        put(square, v, found_inf)
        root = (v / biases[1]).sqrt() + eps
        put(direction, m / biases[0] / root + weight_decay * wide(param), found_inf)
