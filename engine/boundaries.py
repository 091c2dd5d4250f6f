"""Wraps public functions of modules, and constructors and methods of classes: see `refusal`."""

from __future__ import annotations

import types
from collections.abc import Iterable

from .refusal import refusing


def refusing_functions(names: dict[str, object]) -> None:
    """Wrap the public functions of a module or package; `names` are its globals()."""
    package = str(names["__package__"])  # what it has from elsewhere stays
    for name, value in list(names.items()):
        if not isinstance(value, types.FunctionType) or name.startswith("_"):
            continue
        if value.__module__.startswith(package):
            names[name] = refusing(value)


def refusing_classes(found: Iterable[object], base: type) -> None:
    """Wrap the constructors of the classes derived from `base`, and of their subclasses.

    What a class of users raises itself passes.
    """
    for each in found:
        if isinstance(each, type) and issubclass(each, base):
            for kind in each.__mro__:
                if "__init__" in vars(kind) and issubclass(kind, base):
                    _refuse_in(kind, "__init__")


def refusing_methods(kind: type) -> None:
    """Wrap the public methods of a class and of its bases, except for `forward`."""
    for each in kind.__mro__[:-1]:
        for name, value in list(vars(each).items()):
            if isinstance(value, types.FunctionType) and name[0] != "_" and name != "forward":
                _refuse_in(each, name)


def _refuse_in(kind: type, name: str) -> None:
    setattr(kind, name, refusing(vars(kind)[name]))
