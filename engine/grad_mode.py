"""no_grad, enable_grad, inference_mode, set_grad_enabled: whether gradients are recorded."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar, overload

from . import interpreter

P = ParamSpec("P")
R = TypeVar("R")


def is_grad_enabled() -> bool:
    """Whether ops are recorded for gradients."""
    return interpreter.is_grad_enabled()


class Mode:
    """A grad mode for a `with` block, or for the functions that it decorates.

    A decorated function runs in a context of its own (`contextvars`), as `in_grad_mode` has it.
    """

    def __init__(self, mode: bool) -> None:
        self._mode = mode
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(interpreter.is_grad_enabled())
        interpreter.set_grad_enabled(self._mode)

    def __exit__(self, *exc: object) -> None:
        interpreter.set_grad_enabled(self._before.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        mode = self._mode

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return interpreter.in_grad_mode(mode, function, *args, **kwargs)

        return call


@overload
def no_grad() -> Mode: ...
@overload
def no_grad(function: Callable[P, R]) -> Callable[P, R]: ...
def no_grad(function: Callable[P, R] | None = None) -> Mode | Callable[P, R]:
    """Record no gradients in the block, or in the decorated function.

    >>> import onefold as flow
    >>> x = flow.ones(2, requires_grad=True)
    >>> with flow.no_grad():
    ...     (x * 2).requires_grad
    False
    """
    return Mode(False) if function is None else Mode(False)(function)


@overload
def enable_grad() -> Mode: ...
@overload
def enable_grad(function: Callable[P, R]) -> Callable[P, R]: ...
def enable_grad(function: Callable[P, R] | None = None) -> Mode | Callable[P, R]:
    """Record gradients in the block, or in the decorated function."""
    return Mode(True) if function is None else Mode(True)(function)


@overload
def inference_mode(mode: bool = True) -> Mode: ...
@overload
def inference_mode(mode: Callable[P, R]) -> Callable[P, R]: ...
def inference_mode(mode: bool | Callable[P, R] = True) -> Mode | Callable[P, R]:
    """Like no_grad; `inference_mode(False)` records gradients, as in torch."""
    return Mode(False)(mode) if callable(mode) else Mode(not mode)


class set_grad_enabled(Mode):
    """Switch the recording of gradients on or off; as a context manager it switches back."""

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)
        self._outside = interpreter.is_grad_enabled()
        interpreter.set_grad_enabled(mode)

    def __enter__(self) -> None:
        interpreter.set_grad_enabled(self._mode)

    def __exit__(self, *exc: object) -> None:
        interpreter.set_grad_enabled(self._outside)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        interpreter.set_grad_enabled(self._outside)  # it was meant for the function alone
        return super().__call__(function)
