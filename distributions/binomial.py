"""The binomial distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..engine.grad_mode import no_grad
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldNotImplementedError
from ..nn import functional as F
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .discrete import one_of
from .success_probability import SuccessProbability


class Binomial(SuccessProbability):
    """Successes in `total_count` trials, each with probability `probs`, or of `logits`.

    >>> import onefold as flow
    >>> Binomial(10, probs=flow.tensor(0.3)).mean
    tensor(3.)
    """

    has_enumerate_support = True
    arg_constraints: ClassVar = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }

    def __init__(
        self,
        total_count: Parameter = 1,
        probs: Parameter | None = None,
        logits: Parameter | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, given = one_of("Binomial", probs, logits)
        count, value = broadcast_all(total_count, given)
        self.total_count = count.type_as(value)
        setattr(self, name, value)
        super().__init__(value.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return tensor_ops.minimum(((self.total_count + 1) * self.probs).floor(), self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    @no_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return tensor_ops.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        n, logits = self.total_count, self.logits
        choices = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return choices + value * logits - n * F.softplus(logits)

    def entropy(self) -> Tensor:
        values = self.enumerate_support(False)
        log_prob = self.log_prob(values)
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All counts; raises OnefoldNotImplementedError where totals differ. Reads values."""
        total = int(self.total_count.max().item())
        if self.total_count.min().item() != total:
            raise OnefoldNotImplementedError(
                "Inhomogeneous total count not supported by `enumerate_support`."
            )
        shape = (total + 1, *[1] * len(self.batch_shape))
        values = self.total_count.new_tensor(list(range(total + 1))).reshape(shape)
        return values.expand((total + 1, *self.batch_shape)) if expand else values
