"""The generalized Pareto distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from ..engine.tensor import Tensor, tensor_ops
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .distribution import Distribution


class GeneralizedPareto(Distribution):
    """Numbers of at least `loc`, scaled by `scale` > 0, with tails of the shape `concentration`.

    These are exponential where it is 0, longer where it is positive, and end where it is negative.

    >>> import onefold as flow
    >>> GeneralizedPareto(1.0, 2.0, 0.0).mean
    tensor(3.)
    """

    has_rsample = True
    arg_constraints: ClassVar = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }

    def __init__(
        self,
        loc: Parameter,
        scale: Parameter,
        concentration: Parameter,
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        end = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, end.masked_fill(self.concentration >= 0, math.inf))

    @property
    def _shape(self) -> tuple[Tensor, Tensor]:
        """Where the tail is exponential, and the concentration with another value there."""
        none = self.concentration.abs() <= 1e-8
        return none, self.concentration.masked_fill(none, 1.0)

    @property
    def mean(self) -> Tensor:
        """NaN from concentration = 1 on."""
        found = self.loc + self.scale / (1 - self.concentration)
        return found.masked_fill(self.concentration >= 1, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """NaN from concentration = 1/2 on."""
        c = self.concentration
        found = self.scale.square() / ((1 - c).square() * (1 - 2 * c))
        return found.masked_fill(c >= 0.5, math.nan)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """The inverse of `cdf` at uniform numbers."""
        shape = self._extended_shape(sample_shape)
        return self.icdf(tensor_ops.rand_like(self.loc.expand(shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        none, c = self._shape
        z = (value - self.loc) / self.scale
        power = 1 / c + 1
        tail = tensor_ops.where(power == 0, 0.0, power * (c * z).log1p())
        return -self.scale.log() - tensor_ops.where(none, z, tail)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of larger values."""
        self._check_value("log_survival_function", value)
        none, c = self._shape
        z = (value - self.loc) / self.scale
        return tensor_ops.where(none, -z, -(c * z).log1p() / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of `cdf`."""
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return -self.log_survival_function(value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        none, c = self._shape
        survival = (-value).log1p()
        tail = (-c * survival).expm1() / c
        return self.loc + self.scale * tensor_ops.where(none, -survival, tail)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1
