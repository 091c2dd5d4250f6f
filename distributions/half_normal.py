"""The half-normal distribution."""

from __future__ import annotations

import math
from typing import ClassVar

from ..engine.tensor import Tensor
from .folded import Folded
from .normal import Normal


class HalfNormal(Folded):
    """Absolute values of normal variables of mean 0 and standard deviation `scale` > 0.

    >>> import onefold as flow
    >>> HalfNormal(1.0).mean
    tensor(0.7979)
    """

    base: ClassVar = Normal

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (1 - 2 / math.pi)
