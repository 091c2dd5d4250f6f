"""Folded distributions: absolute values of variables that are symmetric around 0."""

from __future__ import annotations

import math
from typing import ClassVar

from ..engine.tensor import Tensor, tensor_ops
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .elementwise_transforms import AbsTransform
from .location_scale import LocationScale
from .transformed_distribution import TransformedDistribution


class Folded(TransformedDistribution):
    """Absolute values of variables of the family `base`, of location 0 and scale `scale` > 0."""

    base: ClassVar[type[LocationScale]]
    arg_constraints: ClassVar = {"scale": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, scale: Parameter, validate_args: bool | None = None) -> None:
        (self.scale,) = broadcast_all(scale)
        super().__init__(self.base(0, self.scale, False), AbsTransform(), validate_args)

    @property
    def mode(self) -> Tensor:
        return tensor_ops.zeros_like(self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        found = self.base_dist.log_prob(value) + math.log(2)
        return tensor_ops.where(value >= 0, found, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value("cdf", value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)
