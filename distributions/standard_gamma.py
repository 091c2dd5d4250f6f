"""Samples of the standard gamma and Dirichlet distributions, with implicit gradients."""

from __future__ import annotations

from typing import Any

import torch

from ..engine.autograd_function import Function
from ..engine.grad_mode import no_grad
from ..engine.ops.rejection_rounds import RejectionRounds
from ..engine.tensor import Tensor, tensor_ops

# Each round keeps more than 0.95 of the candidates: 1 in 10^10 has none in so many.
_ROUNDS = 8


@no_grad
def log_standard_gamma(concentration: Tensor) -> Tensor:
    """Logarithms of gamma numbers of rate 1, which do not underflow where concentrations are small.

    Source: Marsaglia and Tsang, "A simple method for generating gamma variables" (2000), with a
    fixed number of rounds, so that no value is waited for.
    """
    is_small = concentration < 1
    d = concentration + is_small - 1 / 3
    c = 1 / (9 * d).sqrt()
    log_v = tensor_ops.zeros_like(d)
    is_open = d > 0
    rounds = RejectionRounds(_ROUNDS, 2)
    while rounds.again(is_open):
        x = tensor_ops.randn_like(d)
        bound = -tensor_ops.empty_like(d).exponential_()  # the logarithm of a uniform number
        root = 1 + c * x
        inside = root > 0
        candidate = 3 * tensor_ops.where(inside, root, 1.0).log()
        limit = x.square() / 2 + d * (1 - candidate.exp() + candidate)
        taken = is_open & inside & (bound < limit)
        log_v = tensor_ops.where(taken, candidate, log_v)
        is_open = is_open & ~taken
    # gamma(a) = gamma(a + 1) * uniform ** (1 / a)
    shift = tensor_ops.empty_like(d).exponential_() / concentration
    return d.log() + log_v - tensor_ops.where(is_small, shift, 0.0)


class _Gamma(Function):
    """The identity of samples, with the gradient of them for the concentrations.

    The samples are where the distribution function has a fixed value, so their gradient is that of
    the function for the concentration over the density, negated. Source: Figurnov et al., "Implicit
    reparameterization gradients" (2018).
    """

    @staticmethod
    def forward(ctx: Any, concentration: Tensor, drawn: Tensor) -> Tensor:
        ctx.save_for_backward(concentration, drawn)
        return drawn.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        concentration, drawn = ctx.saved_tensors
        (dy,) = grads
        assert dy is not None
        return dy * tensor_ops._standard_gamma_grad(concentration, drawn), None


class _Dirichlet(Function):
    """The same of samples of the Dirichlet distribution, whose last dim adds up to 1."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor, drawn: Tensor) -> Tensor:
        ctx.save_for_backward(concentration, drawn)
        return drawn.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        concentration, drawn = ctx.saved_tensors
        total = concentration.sum(-1, keepdim=True).expand(concentration.shape)
        slope = tensor_ops._dirichlet_grad(drawn, concentration, total)
        (dy,) = grads
        assert dy is not None
        return slope * (dy - (drawn * dy).sum(-1, keepdim=True)), None


def standard_gamma(concentration: Tensor) -> Tensor:
    """Gamma numbers of rate 1, above 0, with gradients for the concentrations."""
    drawn = log_standard_gamma(concentration).exp()
    drawn = drawn.clamp(min=torch.finfo(drawn.dtype).tiny)
    found: Tensor = _Gamma.apply(concentration, drawn)
    return found


def standard_dirichlet(concentration: Tensor) -> Tensor:
    """Gamma numbers over their sum in the last dim, with gradients for the concentrations."""
    drawn = log_standard_gamma(concentration).softmax(-1)
    found: Tensor = _Dirichlet.apply(concentration, drawn)
    return found
