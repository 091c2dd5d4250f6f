"""no_grad, enable_grad, inference_mode, set_grad_enabled: whether gradients are recorded."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from . import interp


def is_grad_enabled() -> bool:
    """Whether ops are being recorded for gradients."""
    return interp.grad_enabled


class _Mode:
    """A mode for a `with` block, or for the functions that it decorates."""

    def __init__(self, mode: bool) -> None:
        self._mode = mode
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(interp.grad_enabled)
        interp.grad_enabled = self._mode

    def __exit__(self, *exc: object) -> None:
        interp.grad_enabled = self._before.pop()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        mode = self._mode

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with interp.grad_mode(mode):
                return function(*args, **kwargs)

        return call


class no_grad(_Mode):
    """Record no gradients in the block, or in the decorated function.

    >>> import onefold as flow
    >>> x = flow.ones(2, requires_grad=True)
    >>> with flow.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        return object.__new__(cls) if function is None else _Mode(False)(function)

    def __init__(self) -> None:
        super().__init__(False)


class enable_grad(_Mode):
    """Record gradients in the block, or in the decorated function."""

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        return object.__new__(cls) if function is None else _Mode(True)(function)

    def __init__(self) -> None:
        super().__init__(True)


class inference_mode(_Mode):
    """Like no_grad; `inference_mode(False)` records gradients, as in torch."""

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        return _Mode(False)(mode) if callable(mode) else object.__new__(cls)

    def __init__(self, mode: bool = True) -> None:
        super().__init__(not mode)


class set_grad_enabled(_Mode):
    """Switch the recording of gradients on or off, at once; as a context it switches back."""

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)
        self._before.append(interp.grad_enabled)
        interp.grad_enabled = mode

    def __enter__(self) -> None:
        interp.grad_enabled = self._mode

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        interp.grad_enabled = self._before.pop()  # it was meant for the function alone
        return super().__call__(function)
