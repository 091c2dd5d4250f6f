"""Symbolic numbers: arguments that a traced function may pass to a launch but not read.

A trace then holds for all values of a number that only a kernel reads, such as a learning rate.
Which these are is declared by the function; see `runtime_scalars`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from inspect import CO_VARARGS, Parameter, signature
from types import CodeType, FunctionType
from typing import Any, NamedTuple, NoReturn, TypeGuard, TypeVar

_KEPT = set(
    """__class__ __delattr__ __dir__ __doc__ __getattribute__ __init__ __init_subclass__ __new__
    __setattr__ __subclasshook__""".split()
)
_MOST = 16  # arguments of a function that takes any number of them
Conversion = Callable[..., float]
Value = TypeVar("Value", bound=float)
Result = TypeVar("Result", bound=float)
Function = TypeVar("Function", bound=Callable[..., object])


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


def runtime_scalars(*names: str) -> Callable[[Function], Function]:
    """Declare parameters that a function only passes on to kernels, through `through` if at all.

    A trace is then valid for all their values. Where Python code reads one after all, as for other
    arguments, its value belongs to the trace; functions written in C must not get one.

    >>> @runtime_scalars("value")
    ... def fill(x, value): ...
    >>> ScalarPlaces(fill).positional
    {1}
    """

    def declared(function: Function) -> Function:
        vars(function)["runtime_scalars"] = names
        return function

    return declared


def _positions(function: Callable[..., object], names: tuple[str, ...]) -> frozenset[int]:
    """The positions of the parameters with these names."""
    if type(function) is FunctionType and not hasattr(function, "__wrapped__"):
        return _positions_in(function.__code__, names)
    found: set[int] = set()
    for place, parameter in enumerate(signature(function).parameters.values()):
        if parameter.name in names and parameter.kind is not Parameter.KEYWORD_ONLY:
            several = parameter.kind is Parameter.VAR_POSITIONAL
            found.update(range(place, _MOST if several else place + 1))
    return frozenset(found)


@cache
def _positions_in(code: CodeType, names: tuple[str, ...]) -> frozenset[int]:
    """The same for every function of one `def`, of which a new one is made in each plan."""
    count = code.co_argcount
    found = {place for place, name in enumerate(code.co_varnames[:count]) if name in names}
    several = code.co_varnames[count + code.co_kwonlyargcount :][: bool(code.co_flags & CO_VARARGS)]
    if several and several[0] in names:
        found.update(range(count, _MOST))
    return frozenset(found)


class ScalarPlaces:
    """The positions of a function's runtime scalars, among positional and named arguments.

    `names` are those of other parameters that are, too. Each cache of traces has sets of its own,
    from which it removes the positions of what is read.
    """

    def __init__(self, function: Callable[..., object], names: Sequence[str] = ()) -> None:
        self._names = (*getattr(function, "runtime_scalars", ()), *names)
        self._given: dict[tuple[int, tuple[str, ...]], set[int]] = {}
        self.positional = set(_positions(function, self._names)) if self._names else set()

    def among(self, count: int, names: tuple[str, ...]) -> set[int]:
        """The positions in a call with this many positional arguments, and then these names."""
        found = self._given.get((count, names))
        if found is None:
            named = [count + i for i, name in enumerate(names) if name in self._names]
            found = {i for i in self.positional if i < count}.union(named)
            self._given[count, names] = found
        return found
