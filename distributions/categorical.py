"""The categorical distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import torch

from ..engine.grad_mode import no_grad
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldTypeError, ShapeError, kind_of
from ..kernels.common_shapes import broadcast_shapes
from . import constraints
from .broadcast_parameters import in_shape
from .discrete import one_of, probs_to_logits
from .exp_family import ExponentialFamily
from .lazy_property import lazy_property


class Categorical(ExponentialFamily):
    """The number of a category, of which the last dim of `probs` or `logits` has the likelihoods.

    `probs` need not sum to 1, nor the exponentials of `logits`. Give one of them.

    >>> import onefold as flow
    >>> Categorical(probs=flow.tensor([1.0, 3.0])).probs
    tensor([0.2500, 0.7500])
    """

    has_enumerate_support = True
    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, value = one_of("Categorical", probs, logits)
        if not isinstance(value, Tensor):
            raise OnefoldTypeError(
                f"Categorical: {name} must be an onefold Tensor, but got {kind_of(value)}"
            )
        if value.ndim < 1:
            raise ShapeError(f"Categorical: `{name}` parameter must be at least one-dimensional.")
        super().__init__(value.shape[:-1], validate_args=validate_args)
        self._num_events = value.shape[-1]
        if name == "probs":
            self.probs = value / value.sum(-1, keepdim=True)
            allowed = (value >= 0) & (self.probs >= 0)  # NaN where the sum is 0 or infinite
            self._check(name, value, allowed, "at least 0, with a sum that is finite and not 0")
        else:
            self.logits = value - value.logsumexp(-1, keepdim=True)
            rule = "numbers below infinity, of which one is finite"
            self._check(name, value, ~self.logits.isnan(), rule)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    def _expand_others(self, new: Self, batch_shape: Sequence[int]) -> None:
        new._num_events = self._num_events

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self.logits.softmax(-1)

    @lazy_property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities, finite also where these are 0."""
        return probs_to_logits(self.probs)

    @property
    def param_shape(self) -> torch.Size:
        """The shape of `probs` and `logits`."""
        return torch.Size((*self.batch_shape, self._num_events))

    @property
    def mean(self) -> Tensor:
        """NaN: categories are no numbers."""
        return self.probs[..., 0] * float("nan")

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        """NaN: categories are no numbers."""
        return self.mean

    @no_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """The largest of log(p) with Gumbel noise, so that no sum over categories is rounded."""
        scores = self.probs.log() if "probs" in self.__dict__ else self.logits
        scores = in_shape(scores, (*self._extended_shape(sample_shape), self._num_events))
        return (scores - (-tensor_ops.rand_like(scores).log()).log()).argmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        shape = broadcast_shapes(value.shape, self.batch_shape)
        places = in_shape(value.long(), shape).unsqueeze(-1)
        logits = in_shape(self.logits, (*shape, self._num_events))
        return logits.gather(-1, places).squeeze(-1)

    def entropy(self) -> Tensor:
        least = torch.finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        shape = (self._num_events, *[1] * len(self.batch_shape))
        values = self.mode.new_tensor(list(range(self._num_events))).reshape(shape)
        return values.expand((self._num_events, *self.batch_shape)) if expand else values

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return natural_params[0].logsumexp(-1)

    @property
    def _mean_carrier_measure(self) -> float:
        return 0.0
