"""Update rules: what a step of an optimizer does to each element, written once.

A rule takes a parameter and its gradient, then what is kept of the parameter, None where it is not
kept, and numbers and flags by name. It gives the new parameter and what is to be kept, in the order
of its arguments; None is not written. Torch runs it on whole tensors, and Triton compiles the same
text: operators, those functions of torch that `gpu/update/update_rule_kernels.py` has, and `if` on
flags and on what is None.
"""

from __future__ import annotations

import torch
from torch import Tensor

Updated = tuple[Tensor | None, ...]


def sgd(
    p: Tensor,
    g: Tensor,
    momentum_buffer: Tensor | None = None,
    *,
    lr: Tensor,
    momentum: Tensor,
    one_minus_dampening: Tensor,
    nesterov: bool,
    first: bool,
) -> Updated:
    """SGD with momentum (Sutskever et al., 2013); on the first step the buffer is the gradient."""
    b = momentum_buffer
    if b is not None:
        b = g if first else momentum * b + one_minus_dampening * g
        g = g + momentum * b if nesterov else b
    return p - lr * g, b


def adam(
    p: Tensor,
    g: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    max_exp_avg_sq: Tensor | None = None,
    *,
    lr: Tensor,
    one_minus_beta1: Tensor,
    beta2: Tensor,
    one_minus_beta2: Tensor,
    bias_correction2_rsqrt: Tensor,
    eps: Tensor,
    decay: Tensor | None = None,
) -> Updated:
    """Adam (Kingma and Ba, 2015), AMSGrad (Reddi et al., 2018) with `max_exp_avg_sq`.

    `lr` includes the first bias correction. The parameter is first multiplied by `decay`, as
    AdamW does.
    """
    if decay is not None:
        p = p * decay
    m = exp_avg + one_minus_beta1 * (g - exp_avg)
    v = beta2 * exp_avg_sq + one_minus_beta2 * g * g
    largest = max_exp_avg_sq
    if largest is not None:
        largest = torch.maximum(v, largest)
    root = torch.sqrt(v if largest is None else largest)
    below = root * bias_correction2_rsqrt + eps
    return p - lr * m / below, m, v, largest


def rmsprop(
    p: Tensor,
    g: Tensor,
    square_avg: Tensor,
    grad_avg: Tensor | None = None,
    momentum_buffer: Tensor | None = None,
    *,
    lr: Tensor,
    alpha: Tensor,
    one_minus_alpha: Tensor,
    eps: Tensor,
    momentum: Tensor,
    eps_in_root: bool,
) -> Updated:
    """RMSprop (Tieleman and Hinton, 2012); with `grad_avg` it is centered (Graves, 2013).

    `eps` is added to the root, or under it.
    """
    square = alpha * square_avg + one_minus_alpha * g * g
    below, mean, buffer = square, grad_avg, momentum_buffer
    if mean is not None:
        mean = mean + one_minus_alpha * (g - mean)
        below = square - mean * mean
    moved = g / (torch.sqrt(below + eps) if eps_in_root else torch.sqrt(below) + eps)
    if buffer is not None:
        buffer = momentum * buffer + moved
        moved = buffer
    return p - lr * moved, square, mean, buffer


def momentum(
    p: Tensor, g: Tensor, momentum_buffer: Tensor, *, lr: Tensor, beta: Tensor, decay: Tensor
) -> Updated:
    """SGDW (Loshchilov and Hutter, 2019), whose momentum has the learning rates in it."""
    moved = beta * momentum_buffer - lr * g
    return p + moved - lr * decay * p, moved


def lamb_direction(
    direction: Tensor,
    g: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    p: Tensor,
    *,
    lr: Tensor,
    one_minus_beta1: Tensor,
    beta2: Tensor,
    one_minus_beta2: Tensor,
    bias_correction2_rsqrt: Tensor,
    eps: Tensor,
    decay: Tensor,
) -> Updated:
    """The direction of LAMB (You et al., 2020); `lr` includes the first bias correction."""
    m = exp_avg + one_minus_beta1 * (g - exp_avg)
    v = beta2 * exp_avg_sq + one_minus_beta2 * g * g
    below = torch.sqrt(v) * bias_correction2_rsqrt + eps
    return lr * m / below + decay * p, m, v, None


def move(p: Tensor, direction: Tensor, *, lr: Tensor) -> Updated:
    """A step against a direction."""
    return (p - lr * direction,)
