"""The Triton functions of pointwise kernels by name: those written in Triton, and expressions."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from types import FunctionType
from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice

from ...scalar_expression import Source, source_of, triton_names

# Functions written in Triton, and how they take arguments; filled by `scalar` and `written`.
_JIT: dict[str, tuple[Any, str]] = {}
_TEXT: dict[str, Source] = {}


def scalar(takes: str) -> Callable[[Callable[..., Any]], Any]:
    """A function of elements, in Triton (a decorator).

    `takes` has a letter for the type of each argument: r(esult's), c(ommon type of the arguments),
    o(wn), or s(tored: as it is in memory). Others but s come in the type of the work: float32 for
    half types, int32 for bools.
    """

    def made(function: Callable[..., Any]) -> Any:
        jit = triton.jit(function)
        _JIT[function.__name__] = jit, takes
        return jit

    return made


def written(signature: str, takes: str, value: str) -> None:
    """A function of elements as text: its name and parameters, how it takes them, its value."""
    name, _, parameters = signature.rstrip(")").partition("(")
    _TEXT[name] = Source(tuple(parameters.split(", ")), f"return {value}", takes)


def is_known(name: str) -> bool:
    """Whether Triton has a function of this name."""
    return name in _JIT or name in _TEXT or source_of(name) is not None


def all_names() -> set[str]:
    """The names of all functions."""
    return {*_JIT, *_TEXT, *triton_names()}


def takes_of(name: str) -> str:
    """How a function takes its arguments; see `scalar`."""
    return _JIT[name][1] if name in _JIT else _source(name).takes


@cache
def function_named(name: str) -> Any:
    """The Triton function."""
    if name in _JIT:
        return _JIT[name][0]
    source = _source(name)
    lines = [f"def {name}({', '.join(source.parameters)}):", *source.body.splitlines()]
    return triton.jit(from_text("\n    ".join(lines) + "\n", name))


def _source(name: str) -> Source:
    source = _TEXT.get(name) or source_of(name)
    assert source is not None, f"Triton has no function {name}"
    return source


def from_text(text: str, name: str, **more: Any) -> FunctionType:
    """The Python function that a text defines, for Triton to compile.

    It may use `more` and whatever functions of elements it names.
    """
    # Triton reads the source of a function from its file; what is no file, Python finds here.
    file = f"<{name} {sha256(text.encode()).hexdigest()[:12]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": __name__, "tl": tl, "libdevice": libdevice, **more}
    tree = ast.parse(text, file)
    nodes = list(ast.walk(tree))
    own = {node.arg for node in nodes if isinstance(node, ast.arg)} | {name, *namespace}
    used = {node.id for node in nodes if isinstance(node, ast.Name)} - own
    namespace.update({other: function_named(other) for other in used if is_known(other)})
    exec(compile(tree, file, "exec"), namespace)
    made: FunctionType = namespace[name]
    return made
