"""Generated functions: their text is compiled once, and tracebacks and debuggers show it."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from functools import lru_cache, update_wrapper
from inspect import Parameter, signature
from itertools import count
from types import CodeType
from typing import Concatenate, ParamSpec, TypeVar

from .names import Function, names, register_as

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_numbers = count(1)


@lru_cache(maxsize=1024)
def _code(text: str, title: str) -> CodeType:
    file = f"<{title} {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return compile(text, file, "exec")


def function(text: str, name: str, title: str, names: dict[str, object]) -> Function:
    """The function `name` that `text` defines, which may use `names`; its file is called `title`.

    Example: `function("def double(x): return 2 * x", "double", "example", {})`.
    """
    found: dict[str, Function] = {}
    names.setdefault("__name__", __name__)  # else its lines would pass for the user's
    exec(_code(text, title), names, found)
    return found[name]


def with_parameters(
    model: Function, name: str, core: Function, *first: object, out: Parameter | None = None
) -> Function:
    """A function with the parameters of `model` except the `first`, which calls `core` with them.

    Written out, so that errors name it, and that no arguments are packed. `first` come before, and
    `out` is the parameter for tensors that take the result.
    """
    whole = signature(model, eval_str=True)
    parameters = list(whole.parameters.values())[len(first) :]
    given = {f"_first{index}": value for index, value in enumerate(first)}
    defaults = {f"_default_{p.name}": p.default for p in parameters if p.default is not p.empty}
    taken, passed = [], [*given]
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and "*" not in taken:
            taken.append("*")
        default = f"_default_{p.name}"
        taken.append(f"{p.name}={default}" if default in defaults else p.name)
        passed.append(f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name)
    call = f"_core({', '.join(passed)})"
    text = f"    return {call}\n"
    if out is not None:
        taken += [*["*"] * ("*" not in taken), "out=None"]
        parameters.append(out)
        text = f"    if out is not None:\n        return _names.give_to(out, {call})\n" + text
    text = f"def {name}({', '.join(taken)}):\n{text}"
    scope = {"__name__": model.__module__, "_core": core, "_names": names, **given, **defaults}
    made = update_wrapper(function(text, name, name, scope), model)
    made.__name__ = made.__qualname__ = name
    vars(made)["__signature__"] = whole.replace(parameters=parameters)
    return made


def register_variant(
    name: str, core: Callable[Concatenate[T, P], R], first: T, doc: str
) -> Callable[P, R]:
    """Register `core` with its first argument bound, as a function of this name."""
    made: Callable[P, R] = with_parameters(core, name, core, first)
    return register_as(name, made, doc)
