"""The geometric distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..engine.grad_mode import no_grad
from ..engine.tensor import Tensor, tensor_ops
from ..nn import functional as F
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .discrete import one_of
from .success_probability import SuccessProbability


class Geometric(SuccessProbability):
    """Failures before the first success, which has probability `probs` > 0, or of `logits`.

    >>> import onefold as flow
    >>> Geometric(0.25).mean
    tensor(3.)
    """

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(
        self,
        probs: Parameter | None = None,
        logits: Parameter | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, given = one_of("Geometric", probs, logits)
        (value,) = broadcast_all(given)
        setattr(self, name, value)
        super().__init__(value.shape, validate_args=validate_args)
        if name == "probs":
            self._check(name, value, value > 0, "greater than 0")

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return tensor_ops.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    @no_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Exponential numbers of rate -log(1 - p), rounded down."""
        probs = self._extended(self.probs, sample_shape)
        return (tensor_ops.empty_like(probs).exponential_() / -(-probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        value, probs = broadcast_all(value, self.probs)
        certain = (probs == 1) & (value == 0)
        misses = (-probs.masked_fill(certain, 0.0)).log1p()
        return value * misses + probs.log()

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / (
            self.probs
        )
