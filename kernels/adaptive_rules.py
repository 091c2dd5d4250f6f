"""Update rules of torch's less common optimizers, written as those in `update_rules` are."""

from __future__ import annotations

import torch
from torch import Tensor

from .update_rules import Updated


def adagrad(p: Tensor, g: Tensor, sum: Tensor, *, lr: Tensor, eps: Tensor) -> Updated:
    """Adagrad (Duchi et al., 2011); `lr` includes the decay of the rate."""
    total = sum + g * g
    return p - lr * g / (torch.sqrt(total) + eps), total


def adamax(
    p: Tensor,
    g: Tensor,
    exp_avg: Tensor,
    exp_inf: Tensor,
    *,
    lr: Tensor,
    one_minus_beta1: Tensor,
    beta2: Tensor,
    eps: Tensor,
) -> Updated:
    """Adamax (Kingma and Ba, 2015); `lr` includes the bias correction."""
    m = exp_avg + one_minus_beta1 * (g - exp_avg)
    largest = torch.maximum(beta2 * exp_inf, torch.maximum(g, -g) + eps)
    return p - lr * m / largest, m, largest


def asgd(
    p: Tensor,
    g: Tensor,
    ax: Tensor,
    *,
    eta: Tensor,
    shrink: Tensor,
    mu: Tensor,
    averaging: bool,
) -> Updated:
    """Averaged SGD (Polyak and Juditsky, 1992); `ax` is the average once that has begun."""
    p = p * shrink - eta * g
    return p, ax + mu * (p - ax) if averaging else p


def nadam(
    p: Tensor,
    g: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    *,
    lr_gradient: Tensor,
    lr_average: Tensor,
    one_minus_beta1: Tensor,
    beta2: Tensor,
    one_minus_beta2: Tensor,
    bias_correction2: Tensor,
    eps: Tensor,
    decay: Tensor | None = None,
) -> Updated:
    """NAdam (Dozat, 2016); both rates include momentum and bias corrections.

    The parameter is first multiplied by `decay`, where weight decay is decoupled.
    """
    if decay is not None:
        p = p * decay
    m = exp_avg + one_minus_beta1 * (g - exp_avg)
    v = beta2 * exp_avg_sq + one_minus_beta2 * g * g
    below = torch.sqrt(v / bias_correction2) + eps
    return p - lr_gradient * g / below - lr_average * m / below, m, v


def radam(
    p: Tensor,
    g: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    *,
    lr: Tensor,
    one_minus_beta1: Tensor,
    beta2: Tensor,
    one_minus_beta2: Tensor,
    rectify: Tensor,
    eps: Tensor,
    rectified: bool,
    decay: Tensor | None = None,
) -> Updated:
    """RAdam (Liu et al., 2020); `lr` includes the first bias correction, `rectify` the second.

    The parameter is first multiplied by `decay`, where weight decay is decoupled.
    """
    if decay is not None:
        p = p * decay
    m = exp_avg + one_minus_beta1 * (g - exp_avg)
    v = beta2 * exp_avg_sq + one_minus_beta2 * g * g
    moved = lr * m
    if rectified:
        # Not rectify / ...: torch divides a number by a tensor in other bits than two tensors.
        moved = moved * rectify / (torch.sqrt(v) + eps)
    return p - moved, m, v


def rprop(
    p: Tensor,
    g: Tensor,
    prev: Tensor,
    step_size: Tensor,
    *,
    etaminus: Tensor,
    etaplus: Tensor,
    smallest: Tensor,
    largest: Tensor,
) -> Updated:
    """Rprop (Riedmiller and Braun, 1993): steps by the signs of gradients alone."""
    same = g * prev
    step = torch.where(same < 0.0, step_size * etaminus, step_size)
    step = torch.where(same > 0.0, step_size * etaplus, step)
    step = torch.where(step < smallest, smallest, torch.where(step > largest, largest, step))
    g = torch.where(same < 0.0, 0.0, g)
    p = torch.where(g > 0.0, p - step, torch.where(g < 0.0, p + step, p))
    return p, g, step


def sparse_adam(
    p: Tensor,
    g: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    *,
    lr: Tensor,
    one_minus_beta1: Tensor,
    one_minus_beta2: Tensor,
    eps: Tensor,
) -> Updated:
    """Adam (Kingma and Ba, 2015) where the gradient is not 0; `lr` includes the corrections."""
    m = exp_avg + one_minus_beta1 * (g - exp_avg)
    v = exp_avg_sq + one_minus_beta2 * (g * g - exp_avg_sq)
    moved = p - lr * m / (torch.sqrt(v) + eps)
    has = g != 0.0
    return (
        torch.where(has, moved, p),
        torch.where(has, m, exp_avg),
        torch.where(has, v, exp_avg_sq),
    )
