"""The relaxed Bernoulli distribution, and that of its logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from ..engine.tensor import Tensor, tensor_ops
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .discrete import clamp_probs, one_of
from .elementwise_transforms import SigmoidTransform
from .success_probability import SuccessProbability
from .transformed_distribution import TransformedDistribution


class LogitRelaxedBernoulli(SuccessProbability):
    """Logits of relaxed Bernoulli variables: logistic numbers around the logit, over `temperature`.

    Source: Maddison et al., "The concrete distribution" (2017).

    >>> import onefold as flow
    >>> LogitRelaxedBernoulli(flow.tensor(1.0), probs=0.5).log_prob(flow.tensor(0.0))
    tensor(-1.3863)
    """

    has_rsample = True
    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real

    def __init__(
        self,
        temperature: Parameter,
        probs: Parameter | None = None,
        logits: Parameter | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, given = one_of(type(self).__name__, probs, logits)
        (self.temperature,) = broadcast_all(temperature)
        (value,) = broadcast_all(given)
        setattr(self, name, value)
        super().__init__(value.shape, validate_args=validate_args)

    def _expand_others(self, new: Self, batch_shape: Sequence[int]) -> None:
        new.temperature = self.temperature

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Logistic numbers, log(u / (1 - u)), around the logits."""
        logits = self._extended(self.logits, sample_shape)
        u = clamp_probs(tensor_ops.rand_like(logits))
        return (u.log() - (-u).log1p() + logits) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        logits, value = broadcast_all(self.logits, value)
        distance = logits - value * self.temperature
        return self.temperature.log() + distance - 2 * tensor_ops.softplus(distance)


class RelaxedBernoulli(TransformedDistribution):
    """Numbers in (0, 1) that approach 0 and 1 as `temperature` > 0 falls; of `probs` or `logits`.

    Source: Jang et al., "Categorical reparameterization with Gumbel-softmax" (2017).

    >>> import onefold as flow
    >>> RelaxedBernoulli(flow.tensor(2.0), probs=0.5).log_prob(flow.tensor(0.5))
    tensor(0.6931)
    """

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval

    def __init__(
        self,
        temperature: Parameter,
        probs: Parameter | None = None,
        logits: Parameter | None = None,
        validate_args: bool | None = None,
    ) -> None:
        one_of(type(self).__name__, probs, logits)
        base = LogitRelaxedBernoulli(temperature, probs, logits, validate_args)
        super().__init__(base, SigmoidTransform(), validate_args)

    @property
    def temperature(self) -> Tensor:
        """How far the numbers are from 0 and 1."""
        return self._logits_of.temperature

    @property
    def logits(self) -> Tensor:
        """log(p / (1 - p))"""
        return self._logits_of.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities of 1, if the temperature were 0."""
        return self._logits_of.probs

    @property
    def _logits_of(self) -> LogitRelaxedBernoulli:
        assert isinstance(self.base_dist, LogitRelaxedBernoulli)
        return self.base_dist
