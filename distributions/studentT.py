"""Student's t distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from ..engine.tensor import Tensor, tensor_ops
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .distribution import Distribution
from .standard_gamma import standard_gamma


class StudentT(Distribution):
    """loc + scale * t, of t with `df` > 0 degrees of freedom.

    >>> import onefold as flow
    >>> StudentT(4.0).variance
    tensor(2.)
    """

    has_rsample = True
    arg_constraints: ClassVar = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real

    def __init__(
        self,
        df: Parameter,
        loc: Parameter = 0.0,
        scale: Parameter = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """NaN up to df = 1."""
        return self.loc.masked_fill(self.df <= 1, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """Infinite up to df = 2, NaN up to df = 1."""
        found = self.scale.square() * self.df / (self.df - 2)
        return found.masked_fill(self.df <= 2, math.inf).masked_fill(self.df <= 1, math.nan)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Normal numbers over the roots of chi-squared numbers, divided by df."""
        df = self._extended(self.df, sample_shape)
        normal = tensor_ops.randn_like(df)
        chi2 = 2 * standard_gamma(0.5 * df)
        return self.loc + self.scale * normal * (chi2 / df).rsqrt()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        y = (value - self.loc) / self.scale
        return -0.5 * (self.df + 1) * (y.square() / self.df).log1p() - self._log_normalizer()

    def _log_normalizer(self) -> Tensor:
        half = 0.5 * self.df
        gammas = half.lgamma() - (half + 0.5).lgamma()
        return self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi) + gammas

    def entropy(self) -> Tensor:
        df = self.df
        log_beta = (0.5 * df).lgamma() + math.lgamma(0.5) - (0.5 * (df + 1)).lgamma()
        slopes = (0.5 * (df + 1)).digamma() - (0.5 * df).digamma()
        return self.scale.log() + 0.5 * (df + 1) * slopes + 0.5 * df.log() + log_beta
