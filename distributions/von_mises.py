"""The von Mises distribution of angles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch

from ..engine.grad_mode import no_grad
from ..engine.ops.rejection_rounds import RejectionRounds
from ..engine.tensor import Tensor, tensor_ops
from ..special import i0e, i1e
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .distribution import Distribution

# Each round keeps more than 0.65 of the candidates: 1 in 10^9 angles has none, and is loc.
_ROUNDS = 20


class VonMises(Distribution):
    """Angles in radians, around `loc`, of concentrations `concentration` > 0.

    >>> import onefold as flow
    >>> VonMises(0.0, 1.0).mean
    tensor(0.)
    """

    arg_constraints: ClassVar = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(
        self, loc: Parameter, concentration: Parameter, validate_args: bool | None = None
    ) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """The circular mean."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular variance."""
        return 1 - i1e(self.concentration) / i0e(self.concentration)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        k = self.concentration
        return k * ((value - self.loc).cos() - 1) - math.log(2 * math.pi) - i0e(k).log()

    @no_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """By rejection from wrapped Cauchy numbers, in float64, as the root there needs digits.

        Source: Best and Fisher, "Efficient simulation of the von Mises distribution" (1979), with a
        fixed number of rounds, so that no value is waited for.
        """
        k = self._extended(self.concentration, sample_shape).to(torch.float64)
        tau = 1 + (1 + 4 * k.square()).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        # For small k the differences above have no digits left: there 1 / k is close enough.
        r = tensor_ops.where(k < 1e-5, 1 / k + k, (1 + rho.square()) / (2 * rho))
        cosine = tensor_ops.ones_like(k)
        is_open = cosine > 0
        rounds = RejectionRounds(_ROUNDS, 2)
        while rounds.again(is_open):
            z = (math.pi * tensor_ops.rand_like(k)).cos()
            u = tensor_ops.rand_like(k)
            f = (1 + r * z) / (r + z)
            c = k * (r - f)
            kept = is_open & ((c * (2 - c) > u) | ((c / u).log() + 1 - c >= 0))
            cosine = tensor_ops.where(kept, f, cosine)
            is_open = is_open & ~kept
        side = (tensor_ops.rand_like(k) - 0.5).sign()
        angle = side * cosine.clamp(min=-1, max=1).acos() + self.loc
        turns = (angle + math.pi).remainder(2 * math.pi) - math.pi
        return turns.type_as(self.loc)
