"""The negative binomial distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..engine.grad_mode import no_grad
from ..engine.tensor import Tensor, tensor_ops
from ..nn import functional as F
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .discrete import one_of
from .standard_gamma import standard_gamma
from .success_probability import SuccessProbability


class NegativeBinomial(SuccessProbability):
    """Successes, with probability `probs` < 1 or of `logits`, before `total_count` > 0 failures.

    >>> import onefold as flow
    >>> NegativeBinomial(2.0, probs=flow.tensor(0.5)).mean
    tensor(2.)
    """

    arg_constraints: ClassVar = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self,
        total_count: Parameter,
        probs: Parameter | None = None,
        logits: Parameter | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, given = one_of("NegativeBinomial", probs, logits)
        count, value = broadcast_all(total_count, given)
        self.total_count = count.type_as(value)
        setattr(self, name, value)
        super().__init__(value.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    @no_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Poisson numbers, whose rates are gamma numbers."""
        shape = self._extended_shape(sample_shape)
        rate = standard_gamma(self.total_count.expand(shape)) * self.logits.exp()
        return tensor_ops.poisson(rate)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        n, logits = self.total_count, self.logits
        unnormalized = n * F.logsigmoid(-logits) + value * F.logsigmoid(logits)
        choices = (n + value).lgamma() - (1 + value).lgamma() - n.lgamma()
        return unnormalized + choices.masked_fill(n + value == 0, 0.0)
