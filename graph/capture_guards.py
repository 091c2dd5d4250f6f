"""Guards: what a captured function looks up in its closure, its globals and its objects.

A program keeps the tensors and numbers that these names had when it was captured. It is valid as
long as they are the same.
"""

from __future__ import annotations

import sys
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextvars import ContextVar
from dataclasses import is_dataclass
from enum import Enum
from functools import cached_property, lru_cache, partial, partialmethod
from itertools import accumulate
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import NamedTuple

import numpy as np
import torch

from ..engine.meta import Meta
from ..engine.tensor import Tensor

_PLAIN = (bool, int, float, complex, str, bytes, type(None), Enum)
_FIXED = (ModuleType, type, BuiltinFunctionType)
_PACKAGES = frozenset({__name__.partition(".")[0], "torch", "numpy"})
_SEQUENCES = (list, tuple, set, frozenset, deque)
_WRAPPED = (UserDict, ChainMap, MappingProxyType)
_CONTAINERS = (*_SEQUENCES, dict, *_WRAPPED, UserList, ContextVar)
_CACHED = type(lru_cache(len))  # a function whose results are kept
_ARRAYS = (np.ndarray, torch.Tensor, bytearray)  # whose elements are read as numbers
_METHODS = (property, staticmethod, classmethod)
_READ = 1 << 16  # bytes of an array that are compared in each call; a larger one is not
_MISSING = object()
_SITES = frozenset({"site-packages", "dist-packages"})  # the folders of installed packages
# Names in code that reads attributes whose names are not in the code.
_DYNAMIC = frozenset({"getattr", "vars", "__dict__", "asdict", "astuple"})
# Methods that code calls without their names.
_IMPLIED = frozenset(
    f"__{name}__"
    for name in """
    call getitem setitem contains len iter next reversed getattr getattribute get enter exit
    bool float int complex index neg pos abs invert round array torch_function
    add sub mul matmul truediv floordiv mod divmod pow and or xor lshift rshift
    radd rsub rmul rmatmul rtruediv rfloordiv rmod rdivmod rpow rand ror rxor rlshift rrshift
    iadd isub imul imatmul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift
    """.split()
)
# Those of a dataclass read all of its fields, and code seldom compares objects: they do not count.
_COMPARISONS = frozenset(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge"))
# The tables of modules, which are compared for themselves (`nn.graph_structure.Tables`).
_TABLES = frozenset(
    """
    _parameters _buffers _modules _forward_pre_hooks _forward_hooks _backward_pre_hooks
    _backward_hooks
    """.split()
)


class _Owner(NamedTuple):
    """The attributes of an object, a class, a module or a function."""

    table: Mapping[str, object]
    before: Mapping[str, object]  # as they were before the capture
    guarded: set[str]
    behind: Set[str] = frozenset()  # the names that are looked up elsewhere if they are not here
    every: bool = False  # whether code may read all of them without their names


class _Slots(Mapping[str, object]):
    """The attributes of an object that are in slots."""

    def __init__(self, of: object) -> None:
        self._of = of
        found = [_slots_in(kind) for kind in type(of).__mro__ if not _is_fixed(kind.__module__)]
        self._names = [name for names in found for name in names if hasattr(of, name)]

    def __getitem__(self, name: str) -> object:
        try:
            return getattr(self._of, name)
        except AttributeError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _slots_in(kind: type) -> list[str]:
    names = vars(kind).get("__slots__", ())
    listed = [names] if isinstance(names, str) else [*names]
    return [name for name in listed if not name.startswith("__")]


class Guards:
    """The values of names before a capture; `drop_changed` keeps those that it left alone."""

    def __init__(self) -> None:
        self.objects: list[object] = []  # those reached, besides functions and numbers
        self._words: set[str] = set()  # the names in the code of all functions
        self._followed: set[tuple[type, FunctionType]] = set()
        self._names: list[tuple[Mapping[str, object], str, object]] = []
        self._cells: list[tuple[CellType, object]] = []
        self._items: list[tuple[object, tuple[object, ...]]] = []
        # Functions with their code and defaults.
        self._functions: list[tuple[FunctionType, CodeType, object, object]] = []
        self._released: list[_Released] = []
        self._owners: list[_Owner] = []
        self._kinds: list[type] = []  # the classes of objects
        self._left: list[object] = []  # what is still to be followed
        self._kept: dict[int, object] = {}  # by id: the objects and classes of `_owners`
        self._seen: dict[int, object] = {}  # by id, which stays theirs since they are kept alive

    def add(self, value: object) -> None:
        """Follow a function, an object, a class or a container."""
        if isinstance(value, type):
            self._left.append(value)
            return
        if isinstance(value, (*_PLAIN, *_FIXED, Tensor)) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, MethodType):
            self._add_all((value.__func__, value.__self__))
        elif isinstance(value, partial):
            self._add_all((value.func, value.args, value.keywords))
        elif isinstance(value, FunctionType):
            self._add_function(value)
        elif isinstance(value, _CACHED):
            self.add(value.__wrapped__)
        elif isinstance(value, _CONTAINERS):
            self._items.append((value, tuple(_items(value))))
            self._add_all(_items(value))
        elif isinstance(value, _ARRAYS):
            self._items.append((value, tuple(_items(value))))
        else:
            self.objects.append(value)
            self._left.append(value)

    def _add_all(self, values: Iterable[object]) -> None:
        for value in values:
            self.add(value)

    def _add_function(self, function: FunctionType) -> None:
        if _is_package(function.__module__ or ""):
            self.add(getattr(function, "__wrapped__", None))
            return
        names = set(_names_in(function.__code__))
        self._words |= names
        parts = function.__code__, function.__defaults__, function.__kwdefaults__
        self._functions.append((function, *parts))
        modules = []
        for cell in function.__closure__ or ():
            value = _content(cell)
            self._cells.append((cell, value))
            self.add(value)
            if isinstance(value, ModuleType):
                modules.append(value)
        self._add_members(function.__globals__, names)
        for module in (*modules, *_imported(function, names)):
            if not _is_others(module.__name__):
                self._add_members(vars(module), names)
        self._add_all((function.__defaults__, function.__kwdefaults__))
        if vars(function):
            self._owners.append(_Owner(vars(function), dict(vars(function)), set()))

    def _add_members(self, table: dict[str, object], names: set[str]) -> None:
        """What a module has under these names, and what the modules in it have.

        Of packages that are installed only numbers and tensors count: much of them is found by
        one name or another, and what they hold for the whole program hardly changes.
        """
        left, seen = [table], [table]
        while left:
            table = left.pop()
            installed = _is_others(str(table.get("__name__", "")))
            for name in sorted(names & table.keys()):
                value = table[name]
                if isinstance(value, (*_PLAIN, Tensor)):
                    self._names.append((table, name, value))
                elif isinstance(value, ModuleType):
                    if not _is_others(value.__name__) and not any(vars(value) is x for x in seen):
                        left.append(vars(value))
                        seen.append(vars(value))
                elif isinstance(value, type):
                    self._left.append(value)
                elif not installed and not isinstance(value, BuiltinFunctionType):
                    self._names.append((table, name, value))
                    if not isinstance(value, FunctionType) or not _is_others(value.__module__):
                        self.add(value)

    def add_method(self, kind: type, name: str = "forward") -> None:
        """Follow a method of a class, and those that it calls by name."""
        left = [name]
        while left:
            for found in _definitions(kind, left.pop()):
                if (kind, found) not in self._followed:
                    self._followed.add((kind, found))
                    names = set(_names_in(found.__code__))
                    self._words |= names
                    left += sorted(names)
                    self.add(found)

    def add_object(self, value: object, before: Mapping[str, object] | None = None) -> None:
        """Guard the attributes of an object, and of its class, that the code reads by name.

        `before` are those that it had before the capture; None: those that it has now.
        """
        if id(value) in self._kept:
            return
        self._kept[id(value)] = value
        table = getattr(value, "__dict__", None)
        if isinstance(table, dict):
            known = dict(table) if before is None else before
            self._owners.append(_Owner(table, known, set(), _names_of(type(value).__mro__), True))
        slots = _Slots(value)
        if len(slots):
            self._owners.append(_Owner(slots, dict(slots), set(), every=True))
        self._add_class(type(value))

    def _add_class(self, kind: type) -> None:
        """The attributes and methods of a class and its bases."""
        if id(kind) in self._kept:
            return
        self._kept[id(kind)] = kind
        for base in kind.__mro__:
            if not _is_others(base.__module__):
                table, behind = vars(base), _names_of(base.__mro__[1:])
                self._owners.append(_Owner(table, dict(table), set(), behind, True))
        if not _is_fixed(kind.__module__):
            self._kinds.append(kind)

    def settle(self) -> None:
        """Guard what is read by the names that were found, and follow it, until nothing is new."""
        words, looked = 0, 0
        while True:
            if len(self._words) > words:
                words, looked = len(self._words), 0  # at all of them again
            while self._left:
                self._follow(self._left.pop())
            if looked < len(self._owners):
                self._look_at(self._owners[looked])
                looked += 1
                continue
            for kind in [*self._kinds]:
                self._add_methods(kind)
            if len(self._words) == words and not self._left and looked == len(self._owners):
                return

    def _look_at(self, owner: _Owner) -> None:
        """Guard the attributes of an object whose names occur in the code that was added."""
        every = owner.every and not self._words.isdisjoint(_DYNAMIC)
        for name, value in owner.before.items():
            called = name in self._words
            if name in owner.guarded or name in _TABLES:
                continue
            if called or (every and not name.startswith("_")):
                owner.guarded.add(name)
                self._names.append((owner.table, name, value))
                if called:
                    self._left.append(value)
        for name in (owner.behind & self._words) - owner.before.keys() - owner.guarded:
            owner.guarded.add(name)
            self._names.append((owner.table, name, _MISSING))

    def _add_methods(self, kind: type) -> None:
        """Follow the methods and properties of an object that the code may call."""
        layer = hasattr(kind, "forward")  # whose methods are followed from there
        for name in sorted(self._words & set(dir(kind))):
            if not layer or isinstance(getattr(kind, name, None), property):
                self.add_method(kind, name)
        implied = _IMPLIED if is_dataclass(kind) else _IMPLIED | _COMPARISONS
        for base in kind.__mro__:
            if not _is_fixed(base.__module__):
                for name in sorted(implied & vars(base).keys()):
                    self.add_method(kind, name)

    def _follow(self, value: object) -> None:
        """Follow an attribute, as it is after the capture."""
        if isinstance(value, type):
            if not _is_others(value.__module__):
                self._add_class(value)
        elif isinstance(value, ModuleType):
            if not _is_others(value.__name__):
                self._add_members(vars(value), self._words)
        elif isinstance(value, (*_PLAIN, *_FIXED, *_METHODS, Tensor)):
            return
        elif isinstance(value, (FunctionType, MethodType, partial, _CACHED)):
            self.add(value)
        elif isinstance(value, (*_CONTAINERS, *_ARRAYS)):
            if id(value) not in self._seen:
                self._seen[id(value)] = value
                items = tuple(_items(value))
                self._items.append((value, items))
                self._left += items
        elif not _is_package(type(value).__module__):
            self.add_object(value)

    def tensors_by_name(self) -> list[Tensor]:
        """The tensors that names refer to."""
        held = {id(item) for _, values in self._items for item in values}
        values = [value for *_, value in [*self._names, *self._cells]]
        found = {id(value): value for value in values if isinstance(value, Tensor)}
        return [tensor for key, tensor in found.items() if key not in held]

    def release(self, tensors: Sequence[Tensor]) -> None:
        """Allow the names of these tensors to refer to others with the same layout."""
        of = {id(tensor): _Released(tensor) for tensor in tensors}
        for mapping, name, value in self._names:
            if id(value) in of:
                of[id(value)].readers.append(partial(mapping.get, name))
        for cell, value in self._cells:
            if id(value) in of:
                of[id(value)].readers.append(partial(_content, cell))
        self._names = [each for each in self._names if id(each[2]) not in of]
        self._cells = [each for each in self._cells if id(each[1]) not in of]
        self._released = list(of.values())

    def released(self) -> list[Tensor] | None:
        """The tensors that released names refer to now; None if one is anything else."""
        found = [each.now() for each in self._released]
        tensors = [tensor for tensor in found if tensor is not None]
        return tensors if len(tensors) == len(found) else None

    def drop_changed(self) -> None:
        """Drop the guards of what has changed since: the captured function itself changed it."""
        self.settle()
        self._names = [x for x in self._names if _same(x[0].get(x[1], _MISSING), x[2])]
        self._cells = [each for each in self._cells if _same(_content(each[0]), each[1])]
        self._items = [each for each in self._items if _all_same(*each)]

    def hold(self) -> bool:
        """Whether every name refers to the same tensor or object, or to an equal number."""
        for mapping, name, value in self._names:
            if mapping.get(name, _MISSING) is not value and not _same(mapping.get(name), value):
                return False
        for cell, value in self._cells:
            if not _same(_content(cell), value):
                return False
        for function, code, defaults, named in self._functions:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                return False
            if function.__kwdefaults__ is not named:
                return False
        return all(_all_same(container, values) for container, values in self._items)


class _Released:
    """Names of one tensor, which may refer to another tensor of the same kind."""

    def __init__(self, tensor: Tensor) -> None:
        self.readers: list[Callable[[], object]] = []
        self._kind = _kind(tensor)

    def now(self) -> Tensor | None:
        first, *others = [read() for read in self.readers]
        if not isinstance(first, Tensor) or any(other is not first for other in others):
            return None
        return first if _kind(first) == self._kind else None


def _is_package(module: str) -> bool:
    return module.partition(".")[0] in _PACKAGES


def _imported(function: FunctionType, names: set[str]) -> Iterator[ModuleType]:
    """The modules that the code of a function may import, also from its own package."""
    package = str(function.__globals__.get("__package__") or "")
    for before in accumulate(
        ["", *package.split(".")], lambda *parts: ".".join(filter(None, parts))
    ):
        for name in sorted(names):
            found = sys.modules.get(f"{before}.{name}".strip("."))
            if isinstance(found, ModuleType):
                yield found


def _definitions(kind: type, name: str) -> Iterator[FunctionType]:
    """The functions that a method of a class may run: its own, and those behind `super()`."""
    for base in kind.__mro__:
        found = vars(base).get(name)
        if isinstance(found, property):
            found = found.fget
        elif isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
        elif isinstance(found, (partialmethod, cached_property)):
            found = found.func
        if isinstance(found, FunctionType):
            yield found
            if "super" not in _names_in(found.__code__) and not hasattr(found, "__wrapped__"):
                return


def _names_of(kinds: Iterable[type]) -> set[str]:
    """The names that users' classes have, which attributes of an instance may hide."""
    return {
        name
        for kind in kinds
        if not _is_others(kind.__module__)
        for name, value in vars(kind).items()
        if not hasattr(type(value), "__set__")
    }


def _is_fixed(module: str) -> bool:
    """Whether nothing in a module changes: it is of a package, or comes with Python."""
    first = module.partition(".")[0]
    return first in _PACKAGES or first in sys.stdlib_module_names


def _is_others(module: str | None) -> bool:
    """Whether a module is no part of the user's program: it is fixed, or was installed."""
    return module is None or _is_fixed(module) or _is_installed(module.partition(".")[0])


@lru_cache(maxsize=1024)
def _is_installed(package: str) -> bool:
    found = sys.modules.get(package)
    places = [getattr(found, "__file__", None), *getattr(found, "__path__", ())]
    return any(not _SITES.isdisjoint(PurePath(place).parts) for place in places if place)


def _kind(tensor: Tensor) -> tuple[Meta, bool, bool]:
    node = tensor.node
    return tensor.meta, node is None, node is not None and node.is_leaf


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _items(container: object) -> Iterator[object]:
    """What must stay the same in a container or an array."""
    if isinstance(container, _SEQUENCES):
        yield from container
    elif isinstance(container, dict):
        for pair in container.items():
            yield from pair
    elif isinstance(container, torch.Tensor):
        yield None if container.is_inference() else container._version
    elif isinstance(container, np.ndarray):
        yield f"{container.dtype} {container.shape}"
        yield container.tobytes() if container.nbytes <= _READ else None
    elif isinstance(container, bytearray):
        yield bytes(container)
    elif isinstance(container, _WRAPPED):
        yield from _items(dict(container))
    elif isinstance(container, UserList):
        yield from container
    elif isinstance(container, ContextVar):
        yield container.get(None)


def _same(now: object, before: object) -> bool:
    if now is before:
        return True
    if type(now) is not type(before) or not isinstance(now, _PLAIN):
        return False
    return now == before if isinstance(now, bytes) else repr(now) == repr(before)


def _all_same(container: object, values: tuple[object, ...]) -> bool:
    items = tuple(_items(container))
    return len(items) == len(values) and all(map(_same, items, values))


def _names_in(code: CodeType) -> Iterator[str]:
    """The names of globals and attributes in code, and in the functions that it makes."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
