"""Symbolic numbers: arguments that a traced function may pass to a launch but not read.

A trace then holds for all values of a number that only a kernel reads, such as a learning rate.
Functions written in C can read a value unnoticed; see `probes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan
from typing import Any, NamedTuple, NoReturn, TypeGuard, TypeVar

_KEPT = set(
    """__class__ __delattr__ __dir__ __doc__ __getattribute__ __init__ __init_subclass__ __new__
    __setattr__ __subclasshook__""".split()
)
_FAR = 7919  # a number far from the size of any dim
Conversion = Callable[..., float]
Value = TypeVar("Value", bound=float)
Result = TypeVar("Result", bound=float)


class ValueNeeded(Exception):
    """The function depends on the value of the number at this position of its arguments."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


class Number(NamedTuple):
    """The number at a position of a function's arguments, and the conversions applied to it."""

    place: int
    steps: tuple[Conversion, ...] = ()

    def of(self, args: Sequence[object]) -> float:
        found = args[self.place]
        assert isinstance(found, (int, float))
        for step in self.steps:
            found = step(found)
        return found


class Symbol:
    """A number that raises ValueNeeded where its value is asked for; also an int or a float."""

    value: float
    number: Number


def _needed(symbol: Symbol, *_: object) -> NoReturn:
    raise ValueNeeded(symbol.number.place)


def _that_asks(kind: type) -> Callable[[float], Symbol]:
    members = {
        name: _needed if callable(getattr(kind, name)) else property(_needed)
        for name in dir(kind)
        if name not in _KEPT
    }
    return type(f"Any{kind.__name__}", (Symbol, kind), members)


_CLASSES = {kind: _that_asks(kind) for kind in (int, float)}


def symbol(value: float, number: Number) -> Any:
    """An int or float with this value that stands for the number."""
    made = _CLASSES[type(value)](value)
    made.value, made.number = value, number
    return made


def is_symbol(x: object) -> TypeGuard[Symbol]:
    return isinstance(x, Symbol)


def kind_of(x: object) -> type:
    """The type of x; for a symbolic number the type of the number."""
    return type(x.value) if is_symbol(x) else type(x)


def through(function: Callable[[Value], Result], x: Value) -> Result:
    """Apply a function to a number. A trace applies it to the number of each replay.

    >>> through(float, 3)
    3.0
    """
    if not is_symbol(x):
        return function(x)
    symbolic: Any = x
    value, (place, steps) = symbolic.value, symbolic.number
    if function is type(value):
        return symbolic  # type: ignore[no-any-return]
    return symbol(function(value), Number(place, (*steps, function)))  # type: ignore[no-any-return]


def probes(value: float) -> list[float]:
    """Other values to trace a function with, which shows whether it reads the number unnoticed."""
    if type(value) is int:
        return [value + _FAR, -_FAR - value]
    near = value / 2 + 0.125
    return [near if near != value and abs(near) < inf else 0.375, inf, nan]
