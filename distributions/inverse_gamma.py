"""The inverse gamma distribution."""

from __future__ import annotations

import math
from typing import ClassVar

from ..engine.tensor import Tensor
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .elementwise_transforms import PowerTransform
from .gamma import Gamma
from .transformed_distribution import TransformedDistribution


class InverseGamma(TransformedDistribution):
    """Reciprocals of gamma variables of shapes `concentration` > 0 and rates `rate` > 0.

    >>> import onefold as flow
    >>> InverseGamma(3.0, 4.0).mean
    tensor(2.)
    """

    arg_constraints: ClassVar = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support = constraints.positive

    def __init__(
        self, concentration: Parameter, rate: Parameter, validate_args: bool | None = None
    ) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        base = Gamma(self.concentration, self.rate, False)
        super().__init__(base, PowerTransform(-1.0), validate_args)

    @property
    def mean(self) -> Tensor:
        """Infinite up to concentration = 1."""
        found = self.rate / (self.concentration - 1)
        return found.masked_fill(self.concentration <= 1, math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        """Infinite up to concentration = 2."""
        a = self.concentration
        found = self.rate.square() / ((a - 1).square() * (a - 2))
        return found.masked_fill(a <= 2, math.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()
