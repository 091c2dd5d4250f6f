"""The Weibull distribution."""

from __future__ import annotations

from typing import ClassVar

from ..engine.tensor import Tensor, tensor_ops
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .elementwise_transforms import AffineTransform, PowerTransform
from .exponential import Exponential
from .gumbel import EULER
from .transformed_distribution import TransformedDistribution


class Weibull(TransformedDistribution):
    """scale * e ** (1 / concentration), of exponential numbers e of rate 1; both > 0.

    >>> import onefold as flow
    >>> Weibull(2.0, 1.0).mean
    tensor(2.)
    """

    arg_constraints: ClassVar = {
        "scale": constraints.positive,
        "concentration": constraints.positive,
    }
    support = constraints.positive

    def __init__(
        self, scale: Parameter, concentration: Parameter, validate_args: bool | None = None
    ) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(tensor_ops.ones_like(self.scale), False)
        transforms = [PowerTransform(1 / self.concentration), AffineTransform(0, self.scale)]
        super().__init__(base, transforms, validate_args)

    @property
    def concentration_reciprocal(self) -> Tensor:
        """1 / concentration."""
        return 1 / self.concentration

    @property
    def mean(self) -> Tensor:
        return self.scale * (1 + self.concentration_reciprocal).lgamma().exp()

    @property
    def mode(self) -> Tensor:
        share = (self.concentration - 1) / self.concentration
        return self.scale * share**self.concentration_reciprocal

    @property
    def variance(self) -> Tensor:
        power = self.concentration_reciprocal
        squares = (1 + 2 * power).lgamma().exp() - (2 * (1 + power).lgamma()).exp()
        return self.scale.square() * squares

    def entropy(self) -> Tensor:
        power = self.concentration_reciprocal
        return EULER * (1 - power) + (self.scale * power).log() + 1
