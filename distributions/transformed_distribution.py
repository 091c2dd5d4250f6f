"""TransformedDistribution: the transform of a random variable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from ..engine.grad_mode import no_grad
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError, kind_of
from . import constraints
from .distribution import Distribution
from .independent import Independent
from .transform import ComposeTransform, Transform, sum_rightmost


class TransformedDistribution(Distribution):
    """Values of `base_distribution`, changed by one transform or by several in turn.

    Its dims are expanded and made dims of the event where the transforms ask for it. Raises
    OnefoldTypeError for what is no transform, OnefoldValueError for too few dims.

    >>> import onefold as flow
    >>> from onefold.distributions import AffineTransform, SigmoidTransform, Uniform
    >>> transforms = [SigmoidTransform().inv, AffineTransform(loc=1.0, scale=2.0)]
    >>> logistic = TransformedDistribution(Uniform(0.0, 1.0), transforms)
    >>> logistic.cdf(flow.tensor(1.0))
    tensor(0.5000)
    """

    arg_constraints: ClassVar = {}

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        given = [transforms] if isinstance(transforms, Transform) else list(transforms)
        for each in given:
            if not isinstance(each, Transform):
                raise OnefoldTypeError(
                    "TransformedDistribution: transforms must be a Transform or a list of them, "
                    f"but got {kind_of(each)}"
                )
        self.transforms = given
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        whole = ComposeTransform(given)
        if len(base_shape) < whole.domain.event_dim:
            raise OnefoldValueError(
                f"base_distribution needs to have shape with size at least "
                f"{whole.domain.event_dim}, but got {tuple(base_shape)}."
            )
        shape = whole.forward_shape(base_shape)
        expanded = whole.inverse_shape(shape)
        base_events = len(base_distribution.event_shape)
        if tuple(base_shape) != tuple(expanded):
            batch = expanded[: len(expanded) - base_events]
            base_distribution = base_distribution.expand(batch)
        added = whole.domain.event_dim - base_events
        if added > 0:
            base_distribution = Independent(base_distribution, added)
        self.base_dist = base_distribution
        change = whole.codomain.event_dim - whole.domain.event_dim
        events = max(whole.codomain.event_dim, len(base_distribution.event_shape) + change)
        cut = len(shape) - events
        super().__init__(shape[:cut], shape[cut:], validate_args)

    def _expand_others(self, new: Self, batch_shape: Sequence[int]) -> None:
        shape = ComposeTransform(self.transforms).inverse_shape((*batch_shape, *self.event_shape))
        batch = shape[: len(shape) - len(self.base_dist.event_shape)]
        new.base_dist = self.base_dist.expand(batch)
        new.transforms = self.transforms

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        missing = len(self.event_shape) - support.event_dim
        return constraints.independent(support, missing) if missing > 0 else support

    @no_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Samples of the base distribution, which need not have gradients, transformed."""
        return self._transformed(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._transformed(self.base_dist.rsample(sample_shape))

    def _transformed(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def _inverted(self, y: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            y = transform._inv_call(y)
        return y

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        dims = len(self.event_shape)
        jacobian: Tensor | float = 0.0
        y = value
        for transform in reversed(self.transforms):
            x = transform._inv_call(y)
            dims += transform.domain.event_dim - transform.codomain.event_dim
            term = transform.log_abs_det_jacobian(x, y)
            jacobian = jacobian + sum_rightmost(term, dims - transform.domain.event_dim)
            y = x
        found = self.base_dist.log_prob(y)
        return sum_rightmost(found, dims - len(self.base_dist.event_shape)) - jacobian

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value("cdf", value)
        return self._reflected(self.base_dist.cdf(self._inverted(value)))

    def icdf(self, value: Tensor) -> Tensor:
        return self._transformed(self.base_dist.icdf(self._reflected(value)))

    def _reflected(self, probability: Tensor) -> Tensor:
        """1 - p where the transforms decrease."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return probability
        reflected: Tensor = sign * (probability - 0.5) + 0.5
        return reflected
