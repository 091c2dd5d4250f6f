"""The beta distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..engine.ops.elementwise_nary import xlogy
from ..engine.tensor import Tensor, tensor_ops
from ..special import xlog1py
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .dirichlet import dirichlet_mode
from .exp_family import ExponentialFamily
from .standard_gamma import standard_dirichlet


class Beta(ExponentialFamily):
    """Beta variables of shapes `concentration1` and `concentration0`, both > 0.

    Their density is proportional to x^(concentration1 - 1) (1 - x)^(concentration0 - 1).

    >>> import onefold as flow
    >>> Beta(1.0, 3.0).mean
    tensor(0.2500)
    """

    has_rsample = True
    arg_constraints: ClassVar = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval

    def __init__(
        self,
        concentration1: Parameter,
        concentration0: Parameter,
        validate_args: bool | None = None,
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    @property
    def _total(self) -> Tensor:
        return self.concentration1 + self.concentration0

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / self._total

    @property
    def mode(self) -> Tensor:
        return dirichlet_mode(self._both)[..., 0]

    @property
    def _both(self) -> Tensor:
        return tensor_ops.stack([self.concentration1, self.concentration0], -1)

    @property
    def variance(self) -> Tensor:
        total = self._total
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """The first of two shares, with implicit gradients."""
        shape = (*self._extended_shape(sample_shape), 2)
        return standard_dirichlet(self._both.expand(shape))[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        shaped = xlogy(self.concentration1 - 1, value) + xlog1py(self.concentration0 - 1, -value)
        return shaped - self._log_beta()

    def _log_beta(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return a.lgamma() + b.lgamma() - (a + b).lgamma()

    def entropy(self) -> Tensor:
        a, b, total = self.concentration1, self.concentration0, self._total
        found = self._log_beta() - (a - 1) * a.digamma() - (b - 1) * b.digamma()
        return found + (total - 2) * total.digamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration1 - 1, self.concentration0 - 1

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return (x + 1).lgamma() + (y + 1).lgamma() - (x + y + 2).lgamma()

    @property
    def _mean_carrier_measure(self) -> float:
        return 0.0
