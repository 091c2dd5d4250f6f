"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Self

from ..engine.tensor import Tensor, tensor_ops
from ..nn import functional as F
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .discrete import clamp_probs, logits_to_probs, one_of
from .exp_family import ExponentialFamily
from .lazy_property import lazy_property
from .success_probability import SuccessProbability


class ContinuousBernoulli(SuccessProbability, ExponentialFamily):
    """Numbers in [0, 1] of density proportional to p^x (1 - p)^(1 - x), of `probs` or `logits`.

    Where p is inside of `lims`, around 1/2, expansions are used. Source: Loaiza-Ganem and
    Cunningham, "The continuous Bernoulli" (2019).

    >>> import onefold as flow
    >>> ContinuousBernoulli(0.5).variance
    tensor(0.0833)
    """

    has_rsample = True
    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval

    def __init__(
        self,
        probs: Parameter | None = None,
        logits: Parameter | None = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        name, given = one_of("ContinuousBernoulli", probs, logits)
        (value,) = broadcast_all(given)
        setattr(self, name, value)
        self._lims = lims
        super().__init__(value.shape, validate_args=validate_args)
        if name == "probs":
            self.probs = clamp_probs(value)

    def _expand_others(self, new: Self, batch_shape: Sequence[int]) -> None:
        new._lims = self._lims

    @lazy_property
    def probs(self) -> Tensor:
        """p, which is neither 0 nor 1."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Where p is around 1/2, p with another value there, and log((1 - p) / p) of it."""
        near = (self.probs > self._lims[0]) & (self.probs <= self._lims[1])
        p = self.probs.masked_fill(near, self._lims[0])
        return near, p, (-p).log1p() - p.log()

    def _log_constant(self) -> Tensor:
        near, p, odds = self._parts()
        found = odds.abs().log() - (1 - 2 * p).abs().log()
        x = (self.probs - 0.5).square()
        return tensor_ops.where(near, math.log(2) + (4 / 3 + 104 / 45 * x) * x, found)

    @property
    def mean(self) -> Tensor:
        near, p, odds = self._parts()
        x = self.probs - 0.5
        around = 0.5 + (1 / 3 + 16 / 45 * x.square()) * x
        return tensor_ops.where(near, around, p / (2 * p - 1) + 1 / odds)

    @property
    def variance(self) -> Tensor:
        near, p, odds = self._parts()
        x = (self.probs - 0.5).square()
        around = 1 / 12 - (1 / 15 - 128 / 945 * x) * x
        found = p * (p - 1) / (1 - 2 * p).square() + 1 / odds.square()
        return tensor_ops.where(near, around, found)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """The inverse of `cdf` at uniform numbers."""
        shape = self._extended_shape(sample_shape)
        return self.icdf(tensor_ops.rand_like(self.probs.expand(shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value("log_prob", value)
        logits, value = broadcast_all(self.logits, value)
        entropies = F.binary_cross_entropy_with_logits(logits, value, reduction="none")
        return self._log_constant() - entropies

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value("cdf", value)
        near, p, _ = self._parts()
        found = (p**value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1)
        x = self.logits
        bend = x * value * (1 - value) / 2 * (1 + x * (1 - 2 * value) / 6)
        return tensor_ops.where(near, value - bend, found).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        near, p, odds = self._parts()
        found = ((-p).log1p() - (value * (2 * p - 1) - p).log1p()) / odds
        x = self.logits
        bend = x * value * (1 - value) / 2 * (1 + x * (1 - 2 * value) / 3)
        return tensor_ops.where(near, value + bend, found)

    def entropy(self) -> Tensor:
        miss, hit = (-self.probs).log1p(), self.probs.log()
        return self.mean * (miss - hit) - self._log_constant() - miss

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        (x,) = natural_params
        near = x.abs() < 0.05
        far = x.masked_fill(near, 1.0)
        series = x / 2 + x.square() / 24 - x**4 / 2880
        return tensor_ops.where(near, series, (far.expm1() / far).log())

    @property
    def _mean_carrier_measure(self) -> float:
        return 0.0
