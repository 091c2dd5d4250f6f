"""Private names of torch that programs call: checks, and functions of lists of tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, OnefoldValueError

_PREFIX = "_foreach_"
_BOUNDS = {"maximum": "clamp_min", "minimum": "clamp_max"}  # which also take numbers
_OPTIONS = {"scalars": "value", "ord": "p"}  # by torch's names, and by those of the methods


def _assert(condition: object, message: object) -> None:
    """AssertionError with the message, unless the condition holds; a tensor is waited for."""
    if not condition:
        raise AssertionError(message)


def _assert_async(input: Tensor, message: str = "Expected a nonzero value") -> None:
    """RuntimeError with the message, unless the one element of `input` is true."""
    if not input:
        raise OnefoldRuntimeError(message)


def _check(cond: object, message: Callable[[], object] | None = None) -> None:
    """RuntimeError with what `message` returns, unless the condition holds."""
    if not cond:
        raise OnefoldRuntimeError("Expected cond to be True" if message is None else str(message()))


def _each(name: str, *args: Any, **kwargs: Any) -> list[Tensor]:
    """The method `name` of each tensor of the first list.

    The other arguments are lists of that length, of tensors or numbers, or the same for all.
    """
    for whole, bound in _BOUNDS.items():
        name = name.replace(whole, bound)
    if len(args) == 4 and name.startswith("addc"):
        *args, kwargs["value"] = args  # type: ignore[assignment]
    for theirs, own in _OPTIONS.items():
        if theirs in kwargs:
            kwargs[own] = kwargs.pop(theirs)
    lengths = {len(each) for each in (*args, *kwargs.values()) if isinstance(each, (list, tuple))}
    if len(lengths) != 1:
        raise OnefoldValueError(
            f"{_PREFIX}{name}: lists must be there, and have the same number of elements, but "
            f"their lengths are {sorted(lengths)}"
        )
    results = []
    for i in range(*lengths):
        x, *given = [_at(each, i) for each in args]
        options = {key: _at(each, i) for key, each in kwargs.items()}
        if not isinstance(x, Tensor):  # the base of powers, which may be a number
            results.append(x ** given[0])
        elif hasattr(x, name):
            results.append(getattr(x, name)(*given, **options))
        else:
            results.append(x.copy_(getattr(x, name.removesuffix("_"))(*given, **options)))
    return results


def _at(value: Any, index: int) -> Any:
    return value[index] if isinstance(value, (list, tuple)) else value


FOREACH = {
    name: partial(_each, name.removeprefix(_PREFIX))
    for name in dir(torch)
    if name.startswith(_PREFIX) and name != f"{_PREFIX}powsum"
}

NAMES = {"_assert": _assert, "_assert_async": _assert_async, "_check": _check, **FOREACH}
