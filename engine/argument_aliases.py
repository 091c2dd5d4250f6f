"""Argument aliases: NumPy's names of arguments, which torch's functions take for their own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any

from ..errors import OnefoldTypeError
from .names import Function

_NAMES = {"axis": "dim", "keepdims": "keepdim"}
ABSENT: Any = inspect.Parameter.empty  # the value of a required parameter that is not given


def aliases_of(code: CodeType) -> tuple[str, ...]:
    """The aliases that a wrapper of a function with fixed parameters takes in addition."""
    if code.co_posonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return ()
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return tuple(alias for alias, name in _NAMES.items() if name in own and alias not in own)


def required_from(code: CodeType, defaults: Sequence[object] | None) -> range:
    """The positions of the required parameters from `dim` on, where an alias is taken for it."""
    required = code.co_argcount - len(defaults or ())
    own = code.co_varnames[:required]
    return range(own.index("dim"), required) if "dim" in own else range(0)


def call_by_own_names(boundary: Function, core: Function, given: dict[str, Any]) -> Any:
    """Call a wrapped function with its own names for the aliases in `given`.

    Raises OnefoldTypeError where an argument is given under both names.
    """
    given = {name: value for name, value in given.items() if value is not ABSENT}
    aliases = {name: given.pop(name) for name in _NAMES if name in given}
    aliases = {name: value for name, value in aliases.items() if value is not None}
    parameters = inspect.signature(core).parameters
    for alias, value in aliases.items():
        name = _NAMES[alias]
        default = parameters[name].default
        if given.get(name, default) is not default:
            raise OnefoldTypeError(
                f"{core.__name__}: got both {name}={given[name]!r} and {alias}={value!r}, which "
                f"are names of the same argument; give one of them"
            )
        given[name] = value
    return (boundary if aliases else core)(**given)


def with_own_names(core: Function, kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The keywords of a call with the function's own names for aliases; None if it has none."""
    found = {alias: name for alias, name in _NAMES.items() if alias in kwargs}
    if not found:
        return None
    own = inspect.signature(core).parameters
    for alias, name in found.items():
        if alias in own or name not in own or name in kwargs:
            return None
    return {found.get(name, name): value for name, value in kwargs.items()}
