"""The table of names through which tensor methods call ops, which are defined in a higher layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

Function: TypeAlias = Callable[..., Any]
F = TypeVar("F", bound=Function)
R = TypeVar("R")


class Names(Generic[R]):
    """Functions by name; an op's function is an attribute once the op is defined."""

    def __getattr__(self, name: str) -> Callable[..., R]:
        raise AttributeError(f"no op named {name!r} is defined")


names: Names[Any] = Names()


def find_name(name: str) -> Function | None:
    """The function registered under `name`, or None."""
    found: Function | None = vars(names).get(name)
    return found


def all_names() -> dict[str, Function]:
    """Every function by its name."""
    return dict(vars(names))


def register_function(function: F) -> F:
    """Register a function under its own name (a decorator)."""
    return register_name(function.__name__, function)


def register_as(name: str, function: F, doc: str) -> F:
    """Register a generated function, which gets this name and documentation."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return register_name(name, function)


def register_name(name: str, function: F) -> F:
    """Register `function` under `name`, which must be new."""
    assert name not in vars(names), f"two functions are named {name}"
    setattr(names, name, function)
    return function
