"""The categorical distribution of one-hot vectors, also with straight-through gradients."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.grad_mode import no_grad
from ..engine.tensor import Tensor, tensor_ops
from ..nn import functional as F
from . import constraints
from .category_vectors import CategoryVectors


class OneHotCategorical(CategoryVectors):
    """One-hot vectors of K categories, of `probs` or `logits` of shape (..., K).

    >>> import onefold as flow
    >>> OneHotCategorical(flow.tensor([0.0, 1.0])).sample()
    tensor([0., 1.])
    """

    has_enumerate_support = True
    support = constraints.one_hot

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return F.one_hot(self.probs.argmax(-1), self.event_shape[0]).type_as(self.probs)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    @no_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = self._categorical.sample(sample_shape)
        return F.one_hot(drawn, self.event_shape[0]).type_as(self.probs)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        k = self.event_shape[0]
        values = tensor_ops.ones_like(self.probs.new_ones(k)).diag_embed()
        values = values.reshape((k, *[1] * len(self.batch_shape), k))
        return values.expand((k, *self.batch_shape, k)) if expand else values

    def __repr__(self) -> str:
        return repr(self._categorical).replace("Categorical", type(self).__name__, 1)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical, of whose samples the gradient is that of the probabilities.

    Source: Bengio et al., "Estimating or propagating gradients through stochastic neurons" (2013).
    """

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """One-hot vectors, with the gradient of `probs`."""
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
