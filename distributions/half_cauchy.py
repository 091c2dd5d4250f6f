"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import ClassVar

from ..engine.tensor import Tensor, tensor_ops
from .cauchy import Cauchy
from .folded import Folded


class HalfCauchy(Folded):
    """Absolute values of Cauchy variables of median 0 and half width `scale` > 0.

    >>> import onefold as flow
    >>> HalfCauchy(1.0).cdf(flow.tensor(1.0))
    tensor(0.5000)
    """

    base: ClassVar = Cauchy

    @property
    def mean(self) -> Tensor:
        return tensor_ops.full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance
