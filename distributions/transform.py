"""Transforms of random variables, and those that are made of others: inverses and compositions."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import Any, Self

from ..engine.tensor import Tensor
from ..errors import OnefoldNotImplementedError, OnefoldTypeError, OnefoldValueError, kind_of
from . import constraints
from .constraints import Constraint

Shape = tuple[int, ...]


def sum_rightmost(x: Tensor, dims: int) -> Tensor:
    """The sum over that many last dims."""
    return x.sum(tuple(range(-dims, 0))) if dims > 0 else x


class Transform:
    """A differentiable function of values of `domain` to values of `codomain`.

    Subclasses define `_call`, `_inverse` and `log_abs_det_jacobian`, and say whether they are
    `bijective`; those of single numbers have a `sign`, 1 or -1, as they increase or decrease. With
    `cache_size` 1 the inverse of the last value is the argument from which it came.

    >>> import onefold as flow
    >>> from onefold.distributions.transforms import ExpTransform
    >>> ExpTransform().inv(flow.tensor(1.0))
    tensor(0.)
    """

    domain: Any
    codomain: Any
    bijective: Any = False

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise OnefoldValueError(f"cache_size must be 0 or 1, but got {cache_size}")
        self._cache_size = cache_size
        self._last: tuple[Tensor | None, Tensor | None] = (None, None)

    @property
    def event_dim(self) -> int:
        """The number of dims of one event; OnefoldValueError where that of results is another."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise OnefoldValueError("Please use either .domain.event_dim or .codomain.event_dim")
        return int(self.domain.event_dim)

    @property
    def inv(self) -> Transform:
        """The inverse transform."""
        return _InverseTransform(self)

    @property
    def sign(self) -> Any:
        """Whether it increases, 1, or decreases, -1."""
        raise OnefoldNotImplementedError(f"{type(self).__name__} has no sign")

    def with_cache(self, cache_size: int = 1) -> Self:
        """The same transform with a cache of this size."""
        if self._cache_size == cache_size:
            return self
        new = copy.copy(self)
        Transform.__init__(new, cache_size)
        return new

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return hash(type(self))

    def __call__(self, x: Tensor) -> Tensor:
        before, known = self._last
        if known is not None and x is before:
            return known
        y = self._call(x)
        self._keep(x, y)
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        known, before = self._last
        if known is not None and y is before:
            return known
        x = self._inverse(y)
        self._keep(x, y)
        return x

    def _keep(self, x: Tensor, y: Tensor) -> None:
        if self._cache_size:
            self._last = x, y

    def _call(self, x: Tensor) -> Tensor:
        raise OnefoldNotImplementedError(f"{type(self).__name__} has no _call")

    def _inverse(self, y: Tensor) -> Tensor:
        raise OnefoldNotImplementedError(f"{type(self).__name__} has no inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |det dy/dx| of each event, where y is the transform of x."""
        raise OnefoldNotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of what it makes of a tensor of this shape."""
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of what the inverse makes of a tensor of this shape."""
        return tuple(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    """The inverse of a transform; they share the cache."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(transform._cache_size)
        self._inv = transform

    @property
    def domain(self) -> Constraint:
        return self._inv.codomain  # type: ignore[no-any-return]

    @property
    def codomain(self) -> Constraint:
        return self._inv.domain  # type: ignore[no-any-return]

    @property
    def bijective(self) -> bool:
        return bool(self._inv.bijective)

    @property
    def sign(self) -> Any:
        return self._inv.sign

    @property
    def inv(self) -> Transform:
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Any:
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = Transform.__hash__

    def __call__(self, x: Tensor) -> Tensor:
        return self._inv._inv_call(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        return self._inv.forward_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"


class ComposeTransform(Transform):
    """One transform after another, the first of `parts` first; of none, the identity."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        for part in parts:
            if not isinstance(part, Transform):
                raise OnefoldTypeError(
                    f"ComposeTransform: each of parts must be a Transform, got {kind_of(part)}"
                )
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) if cache_size else part for part in parts]

    @property
    def domain(self) -> Constraint:
        if not self.parts:
            return constraints.real
        dims = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            dims += part.domain.event_dim - part.codomain.event_dim
            dims = max(dims, part.domain.event_dim)
        return _of_dims(self.parts[0].domain, dims)

    @property
    def codomain(self) -> Constraint:
        if not self.parts:
            return constraints.real
        dims = self.parts[0].domain.event_dim
        for part in self.parts:
            dims += part.codomain.event_dim - part.domain.event_dim
            dims = max(dims, part.codomain.event_dim)
        return _of_dims(self.parts[-1].codomain, dims)

    @property
    def bijective(self) -> bool:
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Any:
        return reduce(mul, (part.sign for part in self.parts), 1)

    @property
    def inv(self) -> Transform:
        return ComposeTransform([part.inv for part in reversed(self.parts)])

    def with_cache(self, cache_size: int = 1) -> Self:
        new = super().with_cache(cache_size)
        if new is not self:
            new.parts = [part.with_cache(cache_size) for part in self.parts]
        return new

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = Transform.__hash__

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inv_call(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part._inv_call(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return x.new_zeros(x.shape)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        dims = self.domain.event_dim
        terms = []
        for part, before, after in zip(self.parts, values[:-1], values[1:], strict=True):
            term = part.log_abs_det_jacobian(before, after)
            terms.append(sum_rightmost(term, dims - part.domain.event_dim))
            dims += part.codomain.event_dim - part.domain.event_dim
        return sum(terms[1:], terms[0])

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return reduce(lambda found, part: part.forward_shape(found), self.parts, tuple(shape))

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        parts = reversed(self.parts)
        return reduce(lambda found, part: part.inverse_shape(found), parts, tuple(shape))

    def __repr__(self) -> str:
        inside = ",\n    ".join(map(repr, self.parts))
        return f"{type(self).__name__}(\n    {inside}\n)"


def _of_dims(constraint: Constraint, dims: int) -> Constraint:
    missing = dims - constraint.event_dim
    return constraints.independent(constraint, missing) if missing else constraint


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform, of which the last dims of the batch are dims of the event."""

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def domain(self) -> Constraint:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @property
    def codomain(self) -> Constraint:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:
        return bool(self.base_transform.bijective)

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, IndependentTransform)
            and self.base_transform == other.base_transform
            and self.reinterpreted_batch_ndims == other.reinterpreted_batch_ndims
        )

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        self._check_dims(x, self.domain)
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        self._check_dims(y, self.codomain)
        return self.base_transform._inv_call(y)

    def _check_dims(self, x: Tensor, constraint: Constraint) -> None:
        if x.ndim < constraint.event_dim:
            raise OnefoldValueError(
                f"IndependentTransform: events have {constraint.event_dim} dims, but got shape "
                f"{tuple(x.shape)}"
            )

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        found = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(found, self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        inside = f"{self.base_transform!r}, {self.reinterpreted_batch_ndims}"
        return f"{type(self).__name__}({inside})"
