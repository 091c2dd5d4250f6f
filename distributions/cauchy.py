"""The Cauchy distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..engine.tensor import Tensor, tensor_ops
from .location_scale import LocationScale


class Cauchy(LocationScale):
    """Cauchy variables of medians `loc` and half widths at half maximum `scale` > 0.

    >>> import onefold as flow
    >>> Cauchy(0.0, 1.0).cdf(flow.tensor(1.0))
    tensor(0.7500)
    """

    @property
    def mean(self) -> Tensor:
        """NaN: there is none."""
        return tensor_ops.full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return tensor_ops.full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """loc + scale * standard Cauchy numbers."""
        loc = self._extended(self.loc, sample_shape)
        return loc + tensor_ops.empty_like(loc).cauchy_() * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        distance = ((value - self.loc) / self.scale).square()
        return -math.log(math.pi) - self.scale.log() - distance.log1p()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value("cdf", value)
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()
