"""MixtureSameFamily: mixtures of distributions of one type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from ..engine.grad_mode import no_grad
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError, kind_of
from ..kernels.common_shapes import broadcast_shapes
from . import constraints
from .categorical import Categorical
from .distribution import Distribution


class MixtureSameFamily(Distribution):
    """Values of one of K components, which a Categorical selects.

    The components are the last dim of the batch of `component_distribution`, of shape (..., K), and
    the categories of `mixture_distribution`, whose batch broadcasts with the rest. Raises
    OnefoldTypeError for other types, OnefoldValueError for shapes that do not fit.

    >>> import onefold as flow
    >>> from onefold.distributions import Normal
    >>> mixture = Categorical(flow.tensor([0.5, 0.5]))
    >>> MixtureSameFamily(mixture, Normal(flow.tensor([-1.0, 3.0]), 1.0)).mean
    tensor(1.)
    """

    arg_constraints: ClassVar = {}

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        for given, kind in (
            (mixture_distribution, Categorical),
            (component_distribution, Distribution),
        ):
            if not isinstance(given, kind):
                raise OnefoldTypeError(
                    "The Mixture distribution needs to be an instance of "
                    f"onefold.distributions.{kind.__name__}, but got {kind_of(given)}"
                )
        mixed, components = mixture_distribution.batch_shape, component_distribution.batch_shape
        k = mixture_distribution.param_shape[-1]
        if not components or components[-1] != k:
            raise OnefoldValueError(
                f"`mixture_distribution` has {k} categories, but the components of "
                f"`component_distribution` are the last of its batch dims, {tuple(components)}"
            )
        if any(a not in (1, b) for a, b in zip(mixed[::-1], components[-2::-1], strict=False)):
            raise OnefoldValueError(
                f"`mixture_distribution.batch_shape` ({tuple(mixed)}) is not compatible with "
                f"`component_distribution.batch_shape`({tuple(components)})"
            )
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        self._num_component = k
        batch = broadcast_shapes(tuple(mixed), tuple(components[:-1]))
        super().__init__(batch, component_distribution.event_shape, validate_args)

    def _expand_others(self, new: Self, batch_shape: Sequence[int]) -> None:
        new._num_component = self._num_component
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        components = (*batch_shape, self._num_component)
        new._component_distribution = self._component_distribution.expand(components)

    @property
    def mixture_distribution(self) -> Categorical:
        """The distribution that selects."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components."""
        return self._component_distribution

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """No: which component is selected has no gradient."""
        return False

    @constraints.dependent_property
    def support(self) -> Any:
        inner = self._component_distribution.support
        return None if inner is None else constraints.MixtureSameFamilyConstraint(inner)

    @property
    def _dim(self) -> int:
        """The dim of the components."""
        return -1 - len(self.event_shape)

    @property
    def _shares(self) -> Tensor:
        """The probabilities of the components, broadcast over their events."""
        probs: Tensor = self._mixture_distribution.probs
        return probs.reshape((*probs.shape, *[1] * len(self.event_shape)))

    @property
    def mean(self) -> Tensor:
        return (self._shares * self._component_distribution.mean).sum(self._dim)

    @property
    def variance(self) -> Tensor:
        """The mean of the variances, and the variance of the means."""
        inner = self._component_distribution
        spread = (inner.mean - self.mean.unsqueeze(self._dim)).square()
        return (self._shares * (inner.variance + spread)).sum(self._dim)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_tensor("cdf", value)
        found = self._component_distribution.cdf(value.unsqueeze(self._dim))
        return (found * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        inner = self._component_distribution.log_prob(value.unsqueeze(self._dim))
        return (inner + self._mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    @no_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """A sample of every component, of which one is taken."""
        lead = (*sample_shape, *self.batch_shape)
        missing = len(self.batch_shape) - len(self._mixture_distribution.batch_shape)
        mixture = self._mixture_distribution
        if missing:
            mixture = mixture.expand(self.batch_shape)
        selected = mixture.sample(sample_shape)
        drawn = self._component_distribution.sample(sample_shape)
        events = len(self.event_shape)
        index = selected.reshape((*lead, *[1] * (events + 1))).expand((*lead, 1, *self.event_shape))
        drawn = drawn.expand((*lead, self._num_component, *self.event_shape))
        return drawn.gather(len(lead), index).squeeze(len(lead))

    def __repr__(self) -> str:
        inside = f"\n  {self._mixture_distribution},\n  {self._component_distribution}"
        return f"{type(self).__name__}({inside})"
