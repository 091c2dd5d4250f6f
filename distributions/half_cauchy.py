"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import ClassVar

from ..engine.tensor import Tensor, tensor_ops
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .cauchy import Cauchy
from .elementwise_transforms import AbsTransform
from .transformed_distribution import TransformedDistribution


class HalfCauchy(TransformedDistribution):
    """Absolute values of Cauchy variables of median 0 and half width `scale` > 0.

    >>> import onefold as flow
    >>> HalfCauchy(1.0).cdf(flow.tensor(1.0))
    tensor(0.5000)
    """

    arg_constraints: ClassVar = {"scale": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, scale: Parameter, validate_args: bool | None = None) -> None:
        (self.scale,) = broadcast_all(scale)
        super().__init__(Cauchy(0, self.scale, False), AbsTransform(), validate_args)

    @property
    def mean(self) -> Tensor:
        return tensor_ops.full_like(self.scale, math.inf)

    @property
    def mode(self) -> Tensor:
        return tensor_ops.zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

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
