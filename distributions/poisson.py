"""The Poisson distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..engine.grad_mode import no_grad
from ..engine.ops.elementwise_nary import xlogy
from ..engine.tensor import Tensor, tensor_ops
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .exp_family import ExponentialFamily


class Poisson(ExponentialFamily):
    """Numbers of events that occur with rates `rate` >= 0.

    >>> import onefold as flow
    >>> Poisson(2.0).log_prob(flow.tensor(0.0))
    tensor(-2.)
    """

    arg_constraints: ClassVar = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Parameter, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    @no_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return tensor_ops.poisson(self._extended(self.rate, sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        rate, value = broadcast_all(self.rate, value)
        return xlogy(value, rate) - rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.rate.log(),)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return natural_params[0].exp()
