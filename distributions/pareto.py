"""The Pareto distribution."""

from __future__ import annotations

from typing import ClassVar

from ..engine.tensor import Tensor
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .elementwise_transforms import AffineTransform, ExpTransform
from .exponential import Exponential
from .transformed_distribution import TransformedDistribution


class Pareto(TransformedDistribution):
    """Pareto variables of at least `scale` > 0, whose tails fall with the power `alpha` > 0.

    >>> import onefold as flow
    >>> Pareto(1.0, 3.0).mean
    tensor(1.5000)
    """

    arg_constraints: ClassVar = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(
        self, scale: Parameter, alpha: Parameter, validate_args: bool | None = None
    ) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        transforms = [ExpTransform(), AffineTransform(0, self.scale)]
        super().__init__(Exponential(self.alpha, False), transforms, validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        """Infinite up to alpha = 1."""
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        """Infinite up to alpha = 2."""
        a = self.alpha.clamp(min=2)
        return self.scale.square() * a / ((a - 1).square() * (a - 2))

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1 + 1 / self.alpha
