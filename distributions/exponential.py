"""The exponential distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..engine.tensor import Tensor, tensor_ops
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .exp_family import ExponentialFamily


class Exponential(ExponentialFamily):
    """Exponential variables of rates `rate` > 0.

    >>> import onefold as flow
    >>> Exponential(2.0).mean
    tensor(0.5000)
    """

    has_rsample = True
    arg_constraints: ClassVar = {"rate": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, rate: Parameter, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def mode(self) -> Tensor:
        return tensor_ops.zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        return 1 / self.rate.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Exponential numbers of rate 1, over the rate."""
        rate = self._extended(self.rate, sample_shape)
        return tensor_ops.empty_like(rate).exponential_() / rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value("cdf", value)
        return -(-self.rate * value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (-self.rate,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return -(-natural_params[0]).log()

    @property
    def _mean_carrier_measure(self) -> float:
        return 0.0
