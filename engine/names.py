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


# Functions whose arguments in `torch` are others than in torch.nn.functional, as `torch` has them.
_torch_forms: dict[str, Function] = {}


def register_torch_form(function: F) -> F:
    """Register the form of a function with the arguments of `torch`'s function (a decorator)."""
    _torch_forms[function.__name__] = function
    return function


def torch_forms() -> dict[str, Function]:
    """The registered forms by name."""
    return dict(_torch_forms)


def find_torch_form(name: str) -> Function | None:
    """The function with the arguments of `torch.<name>`, or None."""
    return _torch_forms.get(name) or find_name(name)


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
