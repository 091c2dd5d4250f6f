"""What a program asks and says about compilation (`flow.compiler`).

Whether its code is captured now, what must not be, and marks of torch's compiler, which mean
nothing here: a program is captured as its Python code runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar, overload

from .compat.missing_names import COMPILER
from .engine import interpreter
from .errors import OnefoldRuntimeError
from .graph.unsupported import missing_attribute
from .nn.compile import compile

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "reset",
]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


def is_compiling() -> bool:
    """Whether `flow.compile` or an `nn.Graph` captures the code that asks.

    >>> import onefold as flow
    >>> flow.compiler.is_compiling()
    False
    """
    return interpreter.capturing()


@overload
def disable(
    fn: None = None, recursive: bool = True, *, reason: str | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@overload
def disable(
    fn: Callable[P, R], recursive: bool = True, *, reason: str | None = None
) -> Callable[P, R]: ...
def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Decorates a function that must not be captured.

    A captured program has no holes, so calling the function in one raises OnefoldRuntimeError,
    which tells `reason`; where torch would run it in eager mode. `recursive` changes nothing.

    >>> import onefold as flow
    >>> @flow.compiler.disable
    ... def rounded(x):
    ...     return round(x.item(), 2)
    >>> rounded(flow.tensor(0.123))
    0.12
    """
    if fn is None:
        return partial(disable, recursive=recursive, reason=reason)
    name = getattr(fn, "__qualname__", repr(fn))
    why = f" ({reason})" if reason else ""

    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if interpreter.capturing():
            raise OnefoldRuntimeError(
                f"{name} is called in a program that is being captured, but "
                f"flow.compiler.disable forbids that{why}; call it before or after the program, or "
                "compile the parts around it one by one"
            )
        return fn(*args, **kwargs)

    return call


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """False: nothing is exported."""
    return False


def allow_in_graph(fn: F) -> F:
    """The function itself: its ops are captured like all others."""
    return fn


def assume_constant_result(fn: F) -> F:
    """The function itself: what it returns without tensors is captured as a constant."""
    return fn


def cudagraph_mark_step_begin() -> None:
    """Does nothing: results of a CUDA graph are copied before the next call."""


def reset() -> None:
    """Does nothing: programs belong to the function that `flow.compile` returned."""


def __getattr__(name: str) -> object:
    raise missing_attribute(COMPILER, __name__, name)
