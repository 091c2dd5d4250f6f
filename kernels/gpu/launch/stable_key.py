"""Keys of compiled forms that do not depend on which kernels a process has used before.

Triton's key of a function holds the constants (`tl.constexpr`) that the functions it calls read.
While Triton computes it, it sees those of a called function only if that one already has a key. So
a kernel would have one key where another kernel shares its functions and came first, and else
another, and a process would not find in the cache what an earlier one compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import getclosurevars
from types import ModuleType
from typing import Any

from triton.runtime.jit import JITCallable


def settle_keys(values: Iterable[object]) -> None:
    """Compute the keys of the Triton functions among these values, those that they call first."""
    for function in reachable(values):
        _ = function.cache_key


def reachable(values: Iterable[object]) -> Iterator[JITCallable]:
    """The Triton functions among these values and those that they call, which come first."""
    return _reachable(values, set())


def _reachable(values: Iterable[object], met: set[int]) -> Iterator[JITCallable]:
    for value in values:
        if isinstance(value, JITCallable) and id(value) not in met:
            met.add(id(value))
            yield from _reachable(_called(value.fn), met)
            yield value


def _called(function: Any) -> Iterator[object]:
    """The values that a function's source names, also as attributes of modules."""
    names = getclosurevars(function)
    for value in (*names.nonlocals.values(), *names.globals.values()):
        yield value
        if isinstance(value, ModuleType) and not value.__name__.startswith("triton."):
            yield from (getattr(value, name) for name in names.unbound if hasattr(value, name))
