"""Transforms of each number by itself, such as exp, tanh and a shift with a scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..engine.tensor import Tensor, tensor_ops
from ..kernels.common_shapes import broadcast_shapes
from ..nn import functional as F
from . import constraints
from .broadcast_parameters import Bound
from .constraints import Constraint
from .distribution import Distribution
from .transform import Shape, Transform, sum_rightmost


def clipped_sigmoid(x: Tensor) -> Tensor:
    """sigmoid(x), neither 0 nor 1, so that it has a finite inverse."""
    limits = torch.finfo(x.dtype)
    return x.sigmoid().clamp(min=limits.tiny, max=1 - limits.eps)


class _Fixed(Transform):
    """A transform without parameters: all of a type are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self))

    __hash__ = Transform.__hash__


class ExpTransform(_Fixed):
    """y = exp(x)"""

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class SigmoidTransform(_Fixed):
    """y = 1 / (1 + exp(-x))"""

    domain = constraints.real
    codomain = constraints.unit_interval
    bijective = True
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        limits = torch.finfo(y.dtype)
        y = y.clamp(min=limits.tiny, max=1 - limits.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x) - F.softplus(x)


class SoftplusTransform(_Fixed):
    """y = log(1 + exp(x))"""

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return F.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x)


class TanhTransform(_Fixed):
    """y = tanh(x), whose inverse is infinite where y is rounded to 1: use a cache."""

    domain = constraints.real
    codomain = constraints.interval(-1.0, 1.0)
    bijective = True
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))


class AbsTransform(_Fixed):
    """y = |x|; the inverse is the positive one."""

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class PowerTransform(Transform):
    """y = x ** exponent, for x > 0."""

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Bound, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Any:
        return _sign(self.exponent)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and _equal(self.exponent, other.exponent)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return tuple(broadcast_shapes(tuple(shape), _shape(self.exponent)))

    inverse_shape = forward_shape


class AffineTransform(Transform):
    """y = loc + scale * x, of events of `event_dim` dims.

    >>> import onefold as flow
    >>> AffineTransform(1.0, 2.0)(flow.tensor([0.0, 1.0]))
    tensor([1., 3.])
    """

    bijective = True

    def __init__(self, loc: Bound, scale: Bound, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc = loc
        self.scale = scale
        self._event_dim = event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @property
    def domain(self) -> Constraint:
        real = constraints.real
        return constraints.independent(real, self._event_dim) if self._event_dim else real

    @property
    def codomain(self) -> Constraint:
        return self.domain

    @property
    def sign(self) -> Any:
        return _sign(self.scale)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AffineTransform)
            and _equal(self.loc, other.loc)
            and _equal(self.scale, other.scale)
        )

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            found = self.scale.abs().log()
        else:
            found = tensor_ops.full_like(x, math.log(abs(self.scale)))
        return sum_rightmost(found.expand(x.shape), self._event_dim)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return tuple(broadcast_shapes(tuple(shape), _shape(self.loc), _shape(self.scale)))

    inverse_shape = forward_shape


class CumulativeDistributionTransform(Transform):
    """y = the probability of values up to x, of a distribution of numbers that has an `icdf`."""

    bijective = True
    codomain = constraints.unit_interval
    sign = 1

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, CumulativeDistributionTransform)
            and self.distribution is other.distribution
        )

    __hash__ = Transform.__hash__

    @property
    def domain(self) -> Constraint:
        return self.distribution.support  # type: ignore[no-any-return]

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)


def _sign(value: Bound) -> Any:
    if isinstance(value, Tensor):
        return value.sign()
    return (value > 0) - (value < 0)


def _shape(value: Bound) -> Shape:
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def _equal(one: Bound, other: Bound) -> bool:
    if one is other:
        return True
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        same = one == other
        return bool(same.all()) if isinstance(same, Tensor) else bool(same)
    return one == other
