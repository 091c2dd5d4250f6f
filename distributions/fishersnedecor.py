"""The F distribution of Fisher and Snedecor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch

from ..engine.tensor import Tensor
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .distribution import Distribution
from .standard_gamma import standard_gamma


class FisherSnedecor(Distribution):
    """Ratios of two chi-squared numbers, each over its degrees of freedom, `df1` and `df2` > 0.

    >>> import onefold as flow
    >>> FisherSnedecor(1.0, 4.0).mean
    tensor(2.)
    """

    has_rsample = True
    arg_constraints: ClassVar = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive

    def __init__(self, df1: Parameter, df2: Parameter, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """NaN up to df2 = 2."""
        return (self.df2 / (self.df2 - 2)).masked_fill(self.df2 <= 2, math.nan)

    @property
    def mode(self) -> Tensor:
        """NaN up to df1 = 2."""
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return mode.masked_fill(self.df1 <= 2, math.nan)

    @property
    def variance(self) -> Tensor:
        """NaN up to df2 = 4."""
        a, b = self.df1, self.df2
        found = 2 * b.square() * (a + b - 2) / (a * (b - 2).square() * (b - 4))
        return found.masked_fill(b <= 4, math.nan)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Ratios of two gamma numbers, with implicit gradients."""
        shape = self._extended_shape(sample_shape)
        above = standard_gamma(0.5 * self.df1.expand(shape)) / self.df1
        below = standard_gamma(0.5 * self.df2.expand(shape)) / self.df2
        return above / below.clamp(min=torch.finfo(below.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        a, b = 0.5 * self.df1, 0.5 * self.df2
        ratio = self.df1 / self.df2
        normalizer = (a + b).lgamma() - a.lgamma() - b.lgamma() + a * ratio.log()
        return normalizer + (a - 1) * value.log() - (a + b) * (ratio * value).log1p()
