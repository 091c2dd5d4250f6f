"""Names of torch.jit that programs hold (`flow.jit`): nothing is scripted, and they run as written.

A function or a module that torch would script gives the same values as it is, and an `nn.Graph` or
`flow.compile` captures it. So decorators give back what they decorate.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    overload,
)

from torch.jit import TracerWarning  # type: ignore[attr-defined]

from .compat.missing_names import JIT
from .graph.unsupported import missing_attribute
from .nn.module import Module

__all__ = [
    "Attribute",
    "Final",
    "ScriptModule",
    "TracerWarning",
    "annotate",
    "export",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "optimized_execution",
    "script",
    "script_if_tracing",
    "script_method",
    "unused",
]

__path__: list[str] = []  # compat/import_paths.py leads to what is below it

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class ScriptModule(Module):
    """A module; its methods run as they are written."""


class Attribute(NamedTuple):
    """A value and its type; a module that is not scripted reads `value`."""

    value: Any
    type: Any


def is_scripting() -> bool:
    """False: no code is scripted.

    >>> import onefold as flow
    >>> flow.jit.is_scripting()
    False
    """
    return False


def is_tracing() -> bool:
    """False: no code is traced; `flow.compiler.is_compiling()` tells whether it is captured."""
    return False


def script(
    obj: T,
    optimize: object = None,
    _frames_up: int = 0,
    _rcb: object = None,
    example_inputs: object = None,
) -> T:
    """`obj` itself: a function, a class or a module. The other arguments change nothing.

    >>> import onefold as flow
    >>> @flow.jit.script
    ... def half(x):
    ...     return x / 2
    >>> half(flow.ones(2))
    tensor([0.5000, 0.5000])
    """
    return obj


def script_method(fn: T) -> T:
    """`fn` itself."""
    return fn


def script_if_tracing(fn: T) -> T:
    """`fn` itself."""
    return fn


def export(fn: T) -> T:
    """`fn` itself."""
    return fn


def unused(fn: T) -> T:
    """`fn` itself."""
    return fn


@overload
def ignore(drop: Callable[P, R], **kwargs: object) -> Callable[P, R]: ...
@overload
def ignore(drop: bool = False, **kwargs: object) -> Callable[[T], T]: ...
def ignore(drop: Any = False, **kwargs: object) -> Any:
    """The function itself, decorated with or without `drop=`."""
    return drop if callable(drop) else _same


def interface(obj: T) -> T:
    """`obj` itself."""
    return obj


def annotate(the_type: object, the_value: T) -> T:
    """`the_value`."""
    return the_value


def isinstance(obj: object, target_type: Any) -> bool:
    """Whether `obj` has a type such as `list[int]`, down to its elements.

    >>> import onefold as flow
    >>> flow.jit.isinstance([1, 2], list[int]), flow.jit.isinstance([1, "a"], list[int])
    (True, False)
    """
    kinds = target_type if builtins.isinstance(target_type, tuple) else (target_type,)
    return any(_is_of(obj, kind) for kind in kinds)


@contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Changes nothing."""
    yield


def _same(fn: T) -> T:
    return fn


def _is_of(value: object, kind: Any) -> bool:
    """`torch.jit.isinstance` for one type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is_of(value, each) for each in inner)
    if kind is None or kind is NoneType:
        return value is None
    if origin is None:
        return builtins.isinstance(value, kind)
    if not builtins.isinstance(value, origin):
        return False
    if builtins.isinstance(value, Mapping):
        return all(_is_of(k, inner[0]) and _is_of(v, inner[1]) for k, v in value.items())
    if builtins.isinstance(value, tuple) and inner[1:] != (...,):
        return len(value) == len(inner) and all(map(_is_of, value, inner))
    assert builtins.isinstance(value, Iterable)
    return all(_is_of(each, inner[0]) for each in value)


# What files of packages name at their top.
_overload = _overload_method = _script_if_tracing = _same


def __getattr__(name: str) -> object:
    raise missing_attribute(JIT, __name__, name)
