"""torch.overrides (`flow.overrides`): functions of programs that other classes may override.

A class overrides a function that begins with `has_torch_function` and `handle_torch_function`, by a
method `__torch_function__`. The functions of this package look for no such method, and a tensor of
Onefold is a plain tensor for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, NoReturn

import torch

from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError
from ..graph.unsupported import missing_attribute
from .missing_names import OVERRIDES

__all__ = [
    "handle_torch_function",
    "has_torch_function",
    "is_tensor_like",
    "wrap_torch_function",
]


def is_tensor_like(inp: object) -> bool:
    """Whether a value is a tensor, or of a class that overrides functions of tensors.

    >>> import onefold as flow
    >>> is_tensor_like(flow.ones(2)), is_tensor_like([1.0])
    (True, False)
    """
    return hasattr(type(inp), "__torch_function__")


def _overrides(value: object) -> bool:
    # torch knows which of its own tensors do, and when: not while such a class runs a function.
    return not isinstance(value, Tensor) and torch.overrides.has_torch_function((value,))


def has_torch_function(relevant_args: Iterable[object]) -> bool:
    """Whether one of the arguments is of another class that overrides functions of tensors."""
    return any(map(_overrides, relevant_args))


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[object], *args: Any, **kwargs: Any
) -> Any:
    """The result of the first argument's class that overrides a function, subclasses first.

    Raises OnefoldTypeError if each of them returns NotImplemented, or if there is none.
    """
    found: dict[type, object] = {}
    for each in relevant_args:
        if _overrides(each):
            found.setdefault(type(each), each)
    # Subclasses go before the classes that they are of, others in their order.
    kinds: list[type] = []
    for kind in found:
        place = next((i for i, k in enumerate(kinds) if issubclass(kind, k)), len(kinds))
        kinds.insert(place, kind)
    for kind in kinds:
        method = getattr(found[kind], "__torch_function__")  # noqa: B009 - unknown to type checkers
        result = method(public_api, tuple(kinds), args, kwargs)
        if result is not NotImplemented:
            return result
    name = getattr(public_api, "__qualname__", repr(public_api))
    raise OnefoldTypeError(
        f"no implementation found for {name!r} on types that implement __torch_function__: "
        f"{[kind.__name__ for kind in kinds]}"
    )


def wrap_torch_function(
    dispatcher: Callable[..., Iterable[object]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function may be overridden by the arguments that `dispatcher` returns."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(call, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return call

    return decorate


def __getattr__(name: str) -> NoReturn:
    if name in OVERRIDES:
        raise missing_attribute(OVERRIDES, __name__, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
