"""The Bernoulli distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..engine.grad_mode import no_grad
from ..engine.tensor import Tensor, tensor_ops
from ..nn import functional as F
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .discrete import one_of
from .exp_family import ExponentialFamily
from .success_probability import SuccessProbability


class Bernoulli(SuccessProbability, ExponentialFamily):
    """1 with probability `probs`, else 0; or of `logits`, log(p / (1 - p)). Give one of them.

    >>> import onefold as flow
    >>> Bernoulli(probs=flow.tensor(0.25)).log_prob(flow.tensor(1.0)).exp()
    tensor(0.2500)
    """

    has_enumerate_support = True
    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean

    def __init__(
        self,
        probs: Parameter | None = None,
        logits: Parameter | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, given = one_of("Bernoulli", probs, logits)
        (value,) = broadcast_all(given)
        setattr(self, name, value)
        super().__init__(value.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        """NaN where both values are equally likely."""
        mode = (self.probs >= 0.5).type_as(self.probs)
        return mode.masked_fill(self.probs == 0.5, float("nan"))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    @no_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        probs = self._extended(self.probs, sample_shape)
        return (tensor_ops.rand_like(probs) < probs).type_as(probs)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        logits, value = broadcast_all(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        zeros = tensor_ops.zeros_like(self.probs)
        both = tensor_ops.stack([zeros, zeros + 1])
        return both if expand else both.reshape(2, -1)[:, :1].reshape(2, *[1] * zeros.ndim)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return F.softplus(natural_params[0])

    @property
    def _mean_carrier_measure(self) -> float:
        return 0.0
