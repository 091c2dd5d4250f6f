"""The gamma distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..engine.ops.elementwise_nary import xlogy
from ..engine.tensor import Tensor, tensor_ops
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .exp_family import ExponentialFamily
from .standard_gamma import standard_gamma


class Gamma(ExponentialFamily):
    """Gamma variables of shapes `concentration` > 0 and rates `rate` > 0.

    >>> import onefold as flow
    >>> Gamma(2.0, 4.0).mean
    tensor(0.5000)
    """

    has_rsample = True
    arg_constraints: ClassVar = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support = constraints.nonnegative

    def __init__(
        self, concentration: Parameter, rate: Parameter, validate_args: bool | None = None
    ) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return (self.concentration - 1).clamp(min=0) / self.rate

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Gamma numbers of rate 1, with implicit gradients, over the rate."""
        shape = self._extended_shape(sample_shape)
        return standard_gamma(self.concentration.expand(shape)) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        shaped = xlogy(self.concentration, self.rate) + xlogy(self.concentration - 1, value)
        return shaped - self.rate * value - self.concentration.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value("cdf", value)
        return tensor_ops.igamma(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return (x + 1).lgamma() - (x + 1) * (-y).log()

    @property
    def _mean_carrier_measure(self) -> float:
        return 0.0
