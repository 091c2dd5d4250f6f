"""The relaxed one-hot categorical distribution, and that of its logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Self

from ..engine.tensor import Tensor, tensor_ops
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .category_vectors import CategoryVectors
from .elementwise_transforms import ExpTransform
from .transformed_distribution import TransformedDistribution


class ExpRelaxedCategorical(CategoryVectors):
    """Logarithms of relaxed one-hot vectors: log_softmax of (logits + Gumbel) / `temperature`.

    Source: Maddison et al., "The concrete distribution" (2017).

    >>> import onefold as flow
    >>> ExpRelaxedCategorical(flow.tensor(1.0), probs=flow.ones(2)).rsample().shape
    torch.Size([2])
    """

    has_rsample = True
    support = constraints.real_vector

    def __init__(
        self,
        temperature: Parameter,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        (self.temperature,) = broadcast_all(temperature)
        super().__init__(probs, logits, validate_args)

    def _expand_others(self, new: Self, batch_shape: Sequence[int]) -> None:
        new.temperature = self.temperature
        super()._expand_others(new, batch_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """The logits with Gumbel noise, over the temperature, normalized."""
        logits = self._extended(self.logits, sample_shape)
        noise = -tensor_ops.empty_like(logits).exponential_().log()
        return ((logits + noise) / self.temperature).log_softmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        k = self.event_shape[0]
        logits, value = broadcast_all(self.logits, value)
        scale = self.temperature.log() * (k - 1) + math.lgamma(k)
        return (logits - value * self.temperature).log_softmax(-1).sum(-1) + scale


class RelaxedOneHotCategorical(TransformedDistribution):
    """Shares that approach one-hot vectors as `temperature` > 0 falls; of `probs` or `logits`.

    Source: Jang et al., "Categorical reparameterization with Gumbel-softmax" (2017).

    >>> import onefold as flow
    >>> RelaxedOneHotCategorical(flow.tensor(1.0), probs=flow.ones(3)).event_shape
    torch.Size([3])
    """

    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex

    def __init__(
        self,
        temperature: Parameter,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args)
        super().__init__(base, ExpTransform(), validate_args)

    @property
    def temperature(self) -> Tensor:
        """How far the shares are from one-hot vectors."""
        return self._log_of.temperature

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._log_of.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities of the categories, if the temperature were 0."""
        return self._log_of.probs

    @property
    def _log_of(self) -> ExpRelaxedCategorical:
        assert isinstance(self.base_dist, ExpRelaxedCategorical)
        return self.base_dist
