"""The distribution of Kumaraswamy."""

from __future__ import annotations

import math
from typing import ClassVar

from ..engine.tensor import Tensor, tensor_ops
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .elementwise_transforms import AffineTransform, PowerTransform
from .gumbel import EULER
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform


class Kumaraswamy(TransformedDistribution):
    """(1 - u ** (1 / concentration0)) ** (1 / concentration1), of uniform numbers u; both > 0.

    >>> import onefold as flow
    >>> Kumaraswamy(1.0, 1.0).mean
    tensor(0.5000)
    """

    arg_constraints: ClassVar = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval

    def __init__(
        self,
        concentration1: Parameter,
        concentration0: Parameter,
        validate_args: bool | None = None,
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        ones = tensor_ops.ones_like(self.concentration1)
        transforms = [
            PowerTransform(1 / self.concentration0),
            AffineTransform(1, -1),
            PowerTransform(1 / self.concentration1),
        ]
        super().__init__(Uniform(ones - 1, ones, False), transforms, validate_args)

    def _moment(self, power: int) -> Tensor:
        """The mean of x ** power: b Beta(1 + power / a, b)."""
        a, b = self.concentration1, self.concentration0
        shape = 1 + power / a
        return b * (shape.lgamma() + b.lgamma() - (shape + b).lgamma()).exp()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """As torch has it; NaN where a concentration is below 1."""
        a, b = self.concentration1, self.concentration0
        log_mode = (-b).log1p() / b - (-a * b).log1p()
        return log_mode.masked_fill((a < 1) | (b < 1), math.nan).exp()

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self.mean.square()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + EULER
        return (1 - 1 / b) + (1 - 1 / a) * harmonic - a.log() - b.log()
