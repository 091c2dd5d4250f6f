"""The Gumbel distribution."""

from __future__ import annotations

import math
from typing import ClassVar

from ..engine.tensor import Tensor, tensor_ops
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .elementwise_transforms import AffineTransform, ExpTransform
from .exponential import Exponential
from .transformed_distribution import TransformedDistribution

EULER = 0.57721566490153286060  # Euler's constant, the mean of standard Gumbel numbers


class Gumbel(TransformedDistribution):
    """loc - scale * log(e), of exponential numbers e of rate 1, and `scale` > 0.

    >>> import onefold as flow
    >>> Gumbel(1.0, 2.0).mean
    tensor(2.1544)
    """

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Parameter, scale: Parameter, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        base = Exponential(tensor_ops.ones_like(self.loc), False)
        transforms = [ExpTransform().inv, AffineTransform(self.loc, -self.scale)]
        super().__init__(base, transforms, validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return (math.pi / math.sqrt(6)) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.square()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value("cdf", value)
        return (-((self.loc - value) / self.scale).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + EULER)
