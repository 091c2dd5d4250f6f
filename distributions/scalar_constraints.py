"""Constraints of single numbers: the sets in which parameters and values of distributions lie.

`check` says of each event whether it is in the set. `is_discrete` and `event_dim`, the number of
last dims that make one event, describe the set; `rule` is it in words, for messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..engine import interpreter
from ..engine.tensor import Tensor
from ..errors import OnefoldNotImplementedError, OnefoldValueError
from .broadcast_parameters import Bound


class Constraint:
    """A set of values. Subclasses define `check`; they can be registered with `transform_to`."""

    is_discrete: Any = False
    event_dim: Any = 0
    rule: Any = "in the support"

    def check(self, value: Tensor) -> Tensor:
        """Bools of the shape of `value` less `event_dim` dims: which events are in the set."""
        raise OnefoldNotImplementedError(f"{type(self).__name__} has no check")

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}()"


class _Dependent(Constraint):
    """A set that depends on other parameters, so that it cannot be checked by itself.

    Raises OnefoldNotImplementedError for properties that are not known beforehand.
    """

    def __init__(self, *, is_discrete: bool | None = None, event_dim: int | None = None) -> None:
        self._is_discrete = is_discrete
        self._event_dim = event_dim

    @property
    def is_discrete(self) -> bool:
        return bool(_known(self._is_discrete, "is_discrete"))

    @property
    def event_dim(self) -> int:
        return int(_known(self._event_dim, "event_dim"))

    def __call__(self, *, is_discrete: bool | None = None, event_dim: int | None = None) -> Any:
        """The same with what is known of it."""
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is None else is_discrete,
            event_dim=self._event_dim if event_dim is None else event_dim,
        )

    def check(self, value: Tensor) -> Tensor:
        raise OnefoldValueError("Cannot determine validity of dependent constraint")


def _known(value: int | None, name: str) -> int:
    if value is None:
        raise OnefoldNotImplementedError(f".{name} cannot be determined statically")
    return value


class _DependentProperty(property, _Dependent):
    """A property of distributions that is a constraint: of the class, that it depends."""

    def __init__(
        self,
        function: Callable[[Any], Constraint] | None = None,
        *,
        is_discrete: bool | None = None,
        event_dim: int | None = None,
    ) -> None:
        super().__init__(function)
        self._is_discrete = is_discrete
        self._event_dim = event_dim

    def __call__(self, function: Callable[[Any], Constraint]) -> Any:  # type: ignore[override]
        """`dependent_property(event_dim=1)` as a decorator."""
        return _DependentProperty(
            function, is_discrete=self._is_discrete, event_dim=self._event_dim
        )


def is_dependent(constraint: object) -> bool:
    """Whether it is a set that depends on other parameters."""
    return isinstance(constraint, _Dependent)


class _Real(Constraint):
    rule = "a number"

    def check(self, value: Tensor) -> Tensor:
        return ~value.isnan()


class _Boolean(Constraint):
    is_discrete = True
    rule = "0 or 1"

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _Bounded(Constraint):
    """What bounds of one side or of both say; subclasses say which of them belong to the set."""

    words = ""

    def __init__(self, lower_bound: Bound | None = None, upper_bound: Bound | None = None) -> None:
        if lower_bound is not None:
            self.lower_bound = lower_bound
        if upper_bound is not None:
            self.upper_bound = upper_bound

    @property
    def rule(self) -> str:
        return self.words.format(**{name: _shown(bound) for name, bound in vars(self).items()})

    def __repr__(self) -> str:
        bounds = ", ".join(f"{name}={bound}" for name, bound in vars(self).items())
        return f"{type(self).__name__.lstrip('_')}({bounds})"


def _shown(bound: Bound) -> str:
    if not isinstance(bound, Tensor):
        return f"{bound:g}"
    if bound.numel() == 1 and not interpreter.capturing():
        return f"{bound.item():g}"
    return "its bound"


class _UpperBounded(_Bounded):
    def __init__(self, upper_bound: Bound) -> None:
        super().__init__(None, upper_bound)


class _GreaterThan(_Bounded):
    words = "greater than {lower_bound}"

    def __init__(self, lower_bound: Bound) -> None:
        super().__init__(lower_bound)

    def check(self, value: Tensor) -> Tensor:
        return value > self.lower_bound


class _GreaterThanEq(_GreaterThan):
    words = "at least {lower_bound}"

    def check(self, value: Tensor) -> Tensor:
        return value >= self.lower_bound


class _LessThan(_UpperBounded):
    words = "less than {upper_bound}"

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound


class _Interval(_Bounded):
    words = "in [{lower_bound}, {upper_bound}]"

    def __init__(self, lower_bound: Bound, upper_bound: Bound) -> None:
        super().__init__(lower_bound, upper_bound)

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class _HalfOpenInterval(_Interval):
    words = "in [{lower_bound}, {upper_bound})"

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value < self.upper_bound)


def _whole_where(allowed: Tensor, value: Tensor) -> Tensor:
    """Whether values are allowed and whole numbers, which integers are."""
    return allowed & (value % 1 == 0) if value.meta.is_floating else allowed


class _IntegerInterval(_Interval):
    is_discrete = True
    words = "an integer in [{lower_bound}, {upper_bound}]"

    def check(self, value: Tensor) -> Tensor:
        return _whole_where(super().check(value), value)


class _IntegerGreaterThan(_GreaterThanEq):
    is_discrete = True
    words = "an integer of at least {lower_bound}"

    def check(self, value: Tensor) -> Tensor:
        return _whole_where(super().check(value), value)


dependent = _Dependent()
dependent_property = _DependentProperty
real = _Real()
boolean = _Boolean()
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
interval = _Interval
half_open_interval = _HalfOpenInterval
integer_interval = _IntegerInterval
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
unit_interval = _Interval(0.0, 1.0)
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
