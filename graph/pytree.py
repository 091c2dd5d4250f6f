"""Pytrees: nested lists, tuples, dicts and dataclasses of tensors, flattened and mapped."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import torch

from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, kind_of

T = TypeVar("T")


def tree_leaves(tree: object, what: str) -> list[Tensor]:
    """The tensors of a tree in order. Raises OnefoldTypeError for anything but tensors and None."""
    found: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        found.append(x)
        return x

    tree_map_checked(tree, keep, what)
    return found


def tree_map_checked(tree: T, function: Callable[[Tensor], object], what: str) -> T:
    """The tree with `function` applied to each tensor; `what` names it in errors."""

    def reject(other: object) -> None:
        if other is None:
            return
        kind = type(other)
        if kind.__module__.split(".")[0] in ("numpy", "torch"):
            name = f"{kind.__module__}.{kind.__qualname__}"
            advice = "Make it a Tensor with flow.tensor(data, placement=..., sbp=...)"
        else:
            name = kind.__name__
            advice = "What does not change from call to call can be an attribute of the graph"
        raise OnefoldTypeError(
            f"{what} of a graph must be a Tensor, None, or a list, tuple, dict or dataclass of "
            f"those, but got {name}. {advice}"
        )

    mapped: T = _tree_map(tree, function, reject)
    return mapped


def tree_map(tree: T, function: Callable[[Tensor], object]) -> T:
    """The tree with `function` applied to each tensor, and other leaves unchanged."""
    mapped: T = _tree_map(tree, function, lambda other: other)
    return mapped


def tree_values(tree: object, function: Callable[[object], object]) -> None:
    """Call `function` with each leaf of a tree that is not a tensor."""

    def visit(leaf: object) -> object:
        function(leaf)
        return leaf  # a container may take nothing else, as torch.Size does

    _tree_map(tree, lambda x: x, visit)


def _tree_map(
    tree: object, function: Callable[[Tensor], object], other: Callable[[object], object]
) -> Any:
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, dict):
        made = {key: _tree_map(tree[key], function, other) for key in _ordered(tree)}
        if type(tree) in (dict, OrderedDict):
            return type(tree)((key, made[key]) for key in tree)
        like = copy(tree)  # of a subclass, which may take other arguments
        for key in tree:
            like[key] = made[key]
        return like
    if isinstance(tree, (list, tuple)):
        parts = [_tree_map(value, function, other) for value in tree]
        named = getattr(tree, "_fields", None) is not None  # a named tuple
        return type(tree)(*parts) if named else type(tree)(parts)
    if isinstance(tree, slice):
        return slice(*[_tree_map(x, function, other) for x in (tree.start, tree.stop, tree.step)])
    if _has_fields(tree):
        result = copy(tree)
        for name, value in _fields(tree).items():  # also of a frozen one
            object.__setattr__(result, name, _tree_map(value, function, other))
        return result
    return other(tree)


def tree_structure(tree: object) -> object:
    """A hashable structure, equal for pytrees that differ in their tensors only."""
    if isinstance(tree, Tensor):
        return "Tensor"
    if isinstance(tree, dict):
        return ("dict", *[(key, tree_structure(tree[key])) for key in _ordered(tree)])
    if isinstance(tree, (list, tuple)):
        return (type(tree).__name__, *[tree_structure(value) for value in tree])
    if _has_fields(tree):
        found = [(name, tree_structure(value)) for name, value in _fields(tree).items()]
        return (type(tree).__name__, *found)
    return type(tree).__name__


def tree_signature(tree: object, found: Callable[[Tensor], object]) -> object:
    """A key, equal for trees that differ in tensors only; the tensors are appended to `found`.

    Other leaves are compared by type and value. Raises OnefoldTypeError for those that cannot be:
    arrays, and torch's tensors.
    """
    if isinstance(tree, Tensor):
        return found(tree)
    kind = type(tree)
    if isinstance(tree, dict):
        return (kind, *[(key, tree_signature(tree[key], found)) for key in _ordered(tree)])
    if isinstance(tree, (list, tuple)):
        return (kind, *[tree_signature(value, found) for value in tree])
    if _has_fields(tree):
        return (kind, *[(name, tree_signature(x, found)) for name, x in _fields(tree).items()])
    if isinstance(tree, slice):
        return (kind, *[tree_signature(x, found) for x in (tree.start, tree.stop, tree.step)])
    if kind in (float, complex):
        return kind, repr(tree)  # 0.0 and -0.0 are equal, nan and nan are not
    if kind.__hash__ is not object.__hash__ and not _hashable(tree):
        raise OnefoldTypeError(
            "an argument of a compiled function must be a Tensor, a Python value that can be "
            f"hashed, or a list, tuple, dict or dataclass of those, but got {kind_of(tree)}"
        )
    return kind, tree


def _hashable(value: object) -> bool:
    """Whether a value is hashable and compared by value, which torch's tensors are not."""
    try:
        hash(value)
    except TypeError:
        return False
    return not isinstance(value, torch.Tensor)


def _has_fields(value: object) -> bool:
    """Whether a value is of a dataclass, and not a module, which keeps more than what it is for."""
    return is_dataclass(value) and not isinstance(value, type) and not callable(value)


def _fields(value: Any) -> dict[str, object]:
    """The attributes of a value of a dataclass by name, also those that are no fields."""
    names = [field.name for field in fields(value) if hasattr(value, field.name)]
    return {**{name: getattr(value, name) for name in names}, **getattr(value, "__dict__", {})}


def _ordered(tree: dict[T, object]) -> list[T]:
    """The keys in an order that does not depend on the order of insertion."""
    return sorted(tree, key=str)
