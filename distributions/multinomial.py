"""The multinomial distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch

from ..engine.grad_mode import no_grad
from ..engine.ops.elementwise_nary import xlogy
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldNotImplementedError
from ..nn import functional as F
from . import constraints
from .binomial import Binomial
from .category_vectors import CategoryVectors


class Multinomial(CategoryVectors):
    """How often each of K categories is drawn, of `total_count` draws.

    `probs` of shape (..., K) need not sum to 1; or give `logits`.

    >>> import onefold as flow
    >>> Multinomial(4, flow.tensor([1.0, 3.0])).mean
    tensor([1., 3.])
    """

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise OnefoldNotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        super().__init__(probs, logits, validate_args)

    def _expand_others(self, new: Self, batch_shape: Sequence[int]) -> None:
        new.total_count = self.total_count
        super()._expand_others(new, batch_shape)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    @no_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        return F.one_hot(drawn, self.event_shape[0]).sum(0).type_as(self.probs)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        choices = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        impossible = (value == 0) & (self.logits == -torch.inf)
        logits = self.logits.expand(impossible.shape).masked_fill(impossible, 0.0)
        return choices + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        """By the entropy of the draws, less what their order tells."""
        n = self.total_count
        marginals = Binomial(n, probs=self.probs, validate_args=False)
        values = marginals.enumerate_support(False)[1:]
        probabilities = marginals.log_prob(values).exp()
        order = (probabilities * (values + 1).lgamma()).sum((0, -1))
        draws = -xlogy(self.probs, self.probs).sum(-1)
        return n * draws - tensor_ops.lgamma(self.probs.new_tensor(n + 1.0)) + order

    def __repr__(self) -> str:
        name = "probs" if "probs" in vars(self._categorical) else "logits"
        inside = f"total_count: {self.total_count}, {name}: {self.param_shape}"
        return f"{type(self).__name__}({inside})"
