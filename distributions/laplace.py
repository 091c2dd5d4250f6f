"""The Laplace distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..engine.tensor import Tensor, tensor_ops
from .location_scale import LocationScale


class Laplace(LocationScale):
    """Laplace variables of means `loc` and scales `scale` > 0.

    >>> import onefold as flow
    >>> Laplace(1.0, 2.0).variance
    tensor(8.)
    """

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.square()

    @property
    def stddev(self) -> Tensor:
        return math.sqrt(2) * self.scale

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """loc + scale times the difference of two exponential numbers."""
        loc = self._extended(self.loc, sample_shape)
        up = tensor_ops.empty_like(loc).exponential_()
        return loc + self.scale * (up - tensor_ops.empty_like(loc).exponential_())

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value("cdf", value)
        y = (value - self.loc) / self.scale
        return 0.5 - 0.5 * y.sign() * (-y.abs()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        centered = value - 0.5
        return self.loc - self.scale * centered.sign() * (-2 * centered.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()
