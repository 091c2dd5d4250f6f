"""Names read: what a function finds outside by name, in its closure, its globals and its objects.

A program keeps the tensors and numbers that these names stood for when it was captured, so it is
valid for as long as they stand for the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType

from ..engine.tensor import Tensor

_PLAIN = (bool, int, float, complex, str, bytes, type(None), Enum)
_FIXED = (ModuleType, type, BuiltinFunctionType)
_PACKAGES = frozenset({__name__.partition(".")[0], "torch", "numpy"})
_MISSING = object()


class NamesRead:
    """What names stood for; functions and objects that are read by name are followed, too."""

    def __init__(self) -> None:
        self._names: list[tuple[Mapping[str, object], str, object]] = []
        self._cells: list[tuple[CellType, object]] = []
        self._items: list[tuple[object, tuple[object, ...]]] = []
        self._seen: dict[int, object] = {}  # by identity, which nothing else has meanwhile

    def add(self, value: object) -> None:
        """Follow a function, or an object or list that it is given."""
        if isinstance(value, (*_PLAIN, *_FIXED, Tensor)) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, MethodType):
            self.add(value.__func__)
            self.add_attributes(value.__self__, _read(value.__func__))
        elif isinstance(value, partial):
            for part in (value.func, value.args, value.keywords):
                self.add(part)
        elif isinstance(value, FunctionType):
            if value.__module__ is not None and value.__module__.partition(".")[0] in _PACKAGES:
                self.add(getattr(value, "__wrapped__", None))
                return
            self._add_function(value)
        elif isinstance(value, (list, tuple, dict)):
            self._items.append((value, tuple(_items(value))))
            for item in _items(value):
                self.add(item)

    def add_attributes(self, owner: object, names: frozenset[str] | None = None) -> None:
        """Keep what the attributes of an object stand for: those of these names, or all."""
        attributes = getattr(owner, "__dict__", None)
        if attributes is None:
            return
        for name, value in attributes.items():
            if not name.startswith("_") and (names is None or name in names):
                self._names.append((attributes, name, value))
                self.add(value)

    def _add_function(self, function: FunctionType) -> None:
        found: list[object] = []
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # not set yet
                continue
            self._cells.append((cell, value))
            found.append(value)
        names = _read(function)
        for name in names & function.__globals__.keys():
            value = function.__globals__[name]
            if not isinstance(value, _FIXED):
                self._names.append((function.__globals__, name, value))
                found.append(value)
        found += [function.__defaults__, function.__kwdefaults__]
        for value in found:
            self.add(value)
            if not isinstance(value, (*_PLAIN, *_FIXED, Tensor, FunctionType, MethodType)):
                self.add_attributes(value, names)

    def same(self) -> bool:
        """Whether every name stands for the same tensor or object, or for an equal number."""
        for mapping, name, value in self._names:
            now = mapping.get(name, _MISSING)
            if now is not value and not _equal(now, value):
                return False
        for cell, value in self._cells:
            now = cell.cell_contents
            if now is not value and not _equal(now, value):
                return False
        for container, values in self._items:
            items = tuple(_items(container))
            if len(items) != len(values) or not all(
                now is value or _equal(now, value)
                for now, value in zip(items, values, strict=True)
            ):
                return False
        return True


def _items(container: object) -> Iterator[object]:
    if isinstance(container, dict):
        for key, value in container.items():
            yield key
            yield value
    elif isinstance(container, (list, tuple)):
        yield from container


def _equal(a: object, b: object) -> bool:
    return type(a) is type(b) and isinstance(a, _PLAIN) and repr(a) == repr(b)


def _read(function: object) -> frozenset[str]:
    """The names of globals and attributes in the code of a function."""
    code = getattr(function, "__code__", None)
    return frozenset() if code is None else frozenset(_names_in(code))


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
