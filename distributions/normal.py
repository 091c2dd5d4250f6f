"""The normal distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..engine.tensor import Tensor, tensor_ops
from .exp_family import ExponentialFamily
from .location_scale import LocationScale


class Normal(LocationScale, ExponentialFamily):
    """Normal variables with means `loc` and standard deviations `scale` > 0.

    >>> import onefold as flow
    >>> Normal(0.0, 1.0).log_prob(flow.tensor(0.0))
    tensor(-0.9189)
    """

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """loc + scale * standard normal numbers."""
        loc = self._extended(self.loc, sample_shape)
        return loc + tensor_ops.randn_like(loc) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        distance = (value - self.loc).square() / (2 * self.variance)
        return -distance - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value("cdf", value)
        return 0.5 * (1 + ((value - self.loc) / (self.scale * math.sqrt(2))).erf())

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.loc / self.variance, -0.5 / self.variance

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return -0.25 * x.square() / y + 0.5 * (-math.pi / y).log()

    @property
    def _mean_carrier_measure(self) -> float:
        return 0.0
