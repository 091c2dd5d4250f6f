"""Independent: a distribution, of which the last dims of the batch are dims of the event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from . import constraints
from .distribution import Distribution
from .transform import sum_rightmost


class Independent(Distribution):
    """`base_dist` with so many dims of its batch in the event: log_prob is a sum over them.

    Raises OnefoldValueError for more dims than the batch has.

    >>> import onefold as flow
    >>> from onefold.distributions import Normal
    >>> Independent(Normal(flow.zeros(3), 1.0), 1).event_shape
    torch.Size([3])
    """

    arg_constraints: ClassVar = {}

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        batch = len(base_distribution.batch_shape)
        if reinterpreted_batch_ndims > batch:
            raise OnefoldValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                f"{reinterpreted_batch_ndims} vs {batch}"
            )
        shape = base_distribution.batch_shape + base_distribution.event_shape
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        batch -= reinterpreted_batch_ndims
        super().__init__(shape[:batch], shape[batch:], validate_args)

    def _expand_others(self, new: Self, batch_shape: Sequence[int]) -> None:
        inner = self.event_shape[: self.reinterpreted_batch_ndims]
        new.base_dist = self.base_dist.expand((*batch_shape, *inner))
        new.reinterpreted_batch_ndims = self.reinterpreted_batch_ndims

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        return not self.reinterpreted_batch_ndims and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> Any:
        support = self.base_dist.support
        if support is None or not self.reinterpreted_batch_ndims:
            return support
        return constraints.independent(support, self.reinterpreted_batch_ndims)

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims:
            raise self._lacks("enumerate_support of several dims; enumerate that of base_dist")
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist!r}, {self.reinterpreted_batch_ndims})"
