"""The log-normal distribution."""

from __future__ import annotations

from typing import ClassVar

from ..engine.tensor import Tensor
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .elementwise_transforms import ExpTransform
from .normal import Normal
from .transformed_distribution import TransformedDistribution


class LogNormal(TransformedDistribution):
    """Exponentials of normal variables of means `loc` and standard deviations `scale` > 0.

    >>> import onefold as flow
    >>> LogNormal(0.0, 1.0).mean
    tensor(1.6487)
    """

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive

    def __init__(self, loc: Parameter, scale: Parameter, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(Normal(self.loc, self.scale, False), ExpTransform(), validate_args)

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.square() / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        squared = self.scale.square()
        return squared.expm1() * (2 * self.loc + squared).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc
