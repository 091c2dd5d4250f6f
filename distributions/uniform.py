"""The uniform distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..engine.tensor import Tensor, tensor_ops
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .distribution import Distribution


class Uniform(Distribution):
    """Uniform variables in [low, high).

    >>> import onefold as flow
    >>> Uniform(0.0, 2.0).cdf(flow.tensor(0.5))
    tensor(0.2500)
    """

    has_rsample = True
    arg_constraints: ClassVar = dict.fromkeys(
        ("low", "high"), constraints.dependent(is_discrete=False, event_dim=0)
    )

    def __init__(self, low: Parameter, high: Parameter, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        self._check("high", self.high, self.low < self.high, "greater than low")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        """NaN: no value is the most likely one."""
        return self.high * float("nan")

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / 12**0.5

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """low + (high - low) * uniform numbers."""
        low = self._extended(self.low, sample_shape)
        return low + tensor_ops.rand_like(low) * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        inside = (self.low <= value) & (self.high > value)
        return inside.type_as(self.low).log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value("cdf", value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()
