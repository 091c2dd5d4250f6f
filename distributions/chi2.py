"""The chi-squared distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .gamma import Gamma


class Chi2(Gamma):
    """Sums of the squares of `df` > 0 standard normal numbers: gamma variables of rate 1/2.

    >>> import onefold as flow
    >>> Chi2(3.0).variance
    tensor(6.)
    """

    arg_constraints: ClassVar = {"df": constraints.positive}

    def __init__(self, df: Parameter, validate_args: bool | None = None) -> None:
        (self.df,) = broadcast_all(df)
        super().__init__(0.5 * self.df, 0.5, validate_args)

    def _expand_others(self, new: Self, batch_shape: Sequence[int]) -> None:
        new.concentration = self.concentration.expand(batch_shape)
        new.rate = self.rate.expand(batch_shape)
