"""Nests of tensors: lists, tuples and dicts taken apart and put together again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError


def leaves(nest: Any, what: str) -> list[Tensor]:
    """The tensors of a nest in order. Raises OnefoldTypeError for anything but tensors and None."""
    found: list[Tensor] = []
    rebuild(nest, found.append, what)
    return found


def rebuild(nest: Any, function: Callable[[Tensor], Any], what: str) -> Any:
    """The same nest with `function` of each tensor; `what` names it in errors."""

    def refuse(other: Any) -> Any:
        if other is None:
            return None
        kind = type(other)
        if kind.__module__.split(".")[0] in ("numpy", "torch"):
            name = f"{kind.__module__}.{kind.__qualname__}"
            advice = "Make it a Tensor with flow.tensor(data, placement=..., sbp=...)"
        else:
            name = kind.__name__
            advice = "What does not change from call to call can be an attribute of the graph"
        raise OnefoldTypeError(
            f"{what} of a graph must be a Tensor, None, or a list, tuple or dict of those, "
            f"but got {name}. {advice}"
        )

    return _rebuild(nest, function, refuse)


def rebuild_any(nest: Any, function: Callable[[Tensor], Any]) -> Any:
    """The same nest with `function` of each tensor, and everything else as it is."""
    return _rebuild(nest, function, lambda other: other)


def _rebuild(nest: Any, function: Callable[[Tensor], Any], other: Callable[[Any], Any]) -> Any:
    if isinstance(nest, Tensor):
        return function(nest)
    if isinstance(nest, dict):
        kind = OrderedDict if isinstance(nest, OrderedDict) else dict
        return kind((key, _rebuild(value, function, other)) for key, value in nest.items())
    if isinstance(nest, (list, tuple)):
        parts = [_rebuild(value, function, other) for value in nest]
        plain = type(nest) in (list, tuple)
        return type(nest)(parts) if plain else type(nest)(*parts)  # a named tuple
    return other(nest)


def outline(nest: Any) -> Any:
    """What two nests have in common when they differ in their tensors only; it can be hashed."""
    if isinstance(nest, Tensor):
        return "Tensor"
    if isinstance(nest, dict):
        return ("dict", *[(key, outline(value)) for key, value in nest.items()])
    if isinstance(nest, (list, tuple)):
        return (type(nest).__name__, *[outline(value) for value in nest])
    return type(nest).__name__
