"""Symbolic numbers: arguments that a traced function may pass to a launch but not read.

A trace then holds for all values of a number that only a kernel reads, such as a learning rate.
Functions written in C can read a value unnoticed; see `probes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan
from typing import Any, NamedTuple

_KEPT = set(
    """__class__ __delattr__ __dir__ __doc__ __getattribute__ __init__ __init_subclass__ __new__
    __setattr__ __subclasshook__""".split()
)
_FAR = 7919  # a number far from the size of any dim


class ValueNeeded(Exception):
    """The function depends on the value of the number at this position of its arguments."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


class Number(NamedTuple):
    """The number at a position of a function's arguments, and the conversions applied to it."""

    place: int
    steps: tuple[Callable[[Any], Any], ...] = ()

    def of(self, args: Sequence[Any]) -> Any:
        found = args[self.place]
        for step in self.steps:
            found = step(found)
        return found


def _needed(symbol: Any, *_: Any) -> Any:
    raise ValueNeeded(symbol.number.place)


def _that_asks(kind: type) -> Any:
    members = {
        name: _needed if callable(getattr(kind, name)) else property(_needed)
        for name in dir(kind)
        if name not in _KEPT
    }
    return type(f"Any{kind.__name__}", (kind,), members)


_CLASSES = {kind: _that_asks(kind) for kind in (int, float)}
_SYMBOLS = tuple(_CLASSES.values())


def symbol(value: Any, number: Number) -> Any:
    """An int or float with this value that stands for the number."""
    made = _CLASSES[type(value)](value)
    made.value, made.number = value, number
    return made


def is_symbol(x: Any) -> bool:
    return isinstance(x, _SYMBOLS)


def kind_of(x: Any) -> type:
    """The type of x; for a symbolic number the type of the number."""
    return type(x.value) if is_symbol(x) else type(x)


def through(function: Callable[[Any], Any], x: Any) -> Any:
    """Apply a function to a number. A trace applies it to the number of each replay.

    >>> through(float, 3)
    3.0
    """
    if not is_symbol(x):
        return function(x)
    if function is type(x.value):
        return x
    return symbol(function(x.value), Number(x.number.place, (*x.number.steps, function)))


def probes(value: Any) -> list[Any]:
    """Other values to trace a function with, which shows whether it reads the number unnoticed."""
    if type(value) is int:
        return [value + _FAR, -_FAR - value]
    near = value / 2 + 0.125
    return [near if near != value and abs(near) < inf else 0.375, inf, nan]
