"""Boundaries: wraps public functions and classes, so that errors name them (`argument_errors`)."""

from __future__ import annotations

import types
from collections.abc import Iterable

from .argument_errors import with_argument_errors


def wrap_functions(names: dict[str, object]) -> None:
    """Wrap the public functions of a module or package; `names` are its globals()."""
    package = str(names["__package__"])  # functions from elsewhere are left alone
    for name, value in list(names.items()):
        if not isinstance(value, types.FunctionType) or name.startswith("_"):
            continue
        if value.__module__.startswith(package):
            names[name] = with_argument_errors(value)


def wrap_constructors(found: Iterable[object], base: type) -> None:
    """Wrap the constructors of the classes derived from `base`, and of their subclasses.

    Exceptions that a user-defined subclass raises itself are left alone.
    """
    for each in found:
        if isinstance(each, type) and issubclass(each, base):
            for kind in each.__mro__:
                if "__init__" in vars(kind) and issubclass(kind, base):
                    _wrap(kind, "__init__")


def wrap_methods(kind: type) -> None:
    """Wrap the public methods of a class and of its bases, except for `forward`."""
    for each in kind.__mro__[:-1]:
        for name, value in list(vars(each).items()):
            if isinstance(value, types.FunctionType) and name[0] != "_" and name != "forward":
                _wrap(each, name)


def _wrap(kind: type, name: str) -> None:
    setattr(kind, name, with_argument_errors(vars(kind)[name]))
