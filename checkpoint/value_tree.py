"""Nests of values as JSON and named tensors, and back: what files hold instead of pickles."""

from __future__ import annotations

import base64
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

from ..engine.placement import Placement
from ..engine.sbp import Sbp, parse
from ..engine.tensor import Tensor
from ..errors import CheckpointError, OnefoldTypeError

Leaf: TypeAlias = Tensor | torch.Tensor | np.ndarray
Json: TypeAlias = Any  # what json.dumps takes
TAG = "$"  # the key that marks an object of JSON as another value than a dict


class Description:
    """A nest as JSON, and its tensors by name; a tensor that occurs twice has one name.

    Raises OnefoldTypeError, with the path, for a value of another type than those of state dicts.

    >>> Description({"lr": 0.1, "betas": (0.9, 0.99)}).tree
    {'lr': 0.1, 'betas': {'$': 'tuple', 'items': [0.9, 0.99]}}
    """

    def __init__(self, value: object) -> None:
        self.tensors: dict[str, Leaf] = {}
        self._names: dict[int, str] = {}
        self.tree = self._described(value, ())

    def _described(self, value: object, path: tuple[str, ...]) -> Json:
        plain = _scalar(value)
        if plain is not _NOT_PLAIN:
            return plain
        if isinstance(value, (Tensor, torch.Tensor, np.ndarray)):
            return self._tensor(value, path)
        if type(value) in (dict, OrderedDict):
            return self._dict(value, path)  # type: ignore[arg-type]
        if type(value) in _SEQUENCES:
            items: Iterable[object] = value  # type: ignore[assignment]
            listed = [self._described(item, (*path, str(i))) for i, item in enumerate(items)]
            kind = type(value).__name__
            return listed if kind == "list" else {TAG: kind, "items": listed}
        raise OnefoldTypeError(
            f"cannot save {'.'.join(path) or 'the object'}, a {type(value).__name__}: files hold "
            "tensors, numbers, strings and dicts, lists, tuples and sets of them. Save its "
            "state_dict() instead, or what it is made from"
        )

    def _dict(self, value: Mapping[object, object], path: tuple[str, ...]) -> Json:
        items = [(key, self._described(x, (*path, str(key)))) for key, x in value.items()]
        if type(value) is dict and TAG not in value and all(type(key) is str for key in value):
            return dict(items)
        keys = [self._described(key, (*path, str(key))) for key, _ in items]
        pairs = [[key, x] for key, (_, x) in zip(keys, items, strict=True)]
        found: dict[str, Json] = {TAG: type(value).__name__, "items": pairs}
        metadata = getattr(value, "_metadata", None)  # of a module's state: versions
        if metadata is not None:
            found["metadata"] = self._described(metadata, (*path, "_metadata"))
        return found

    def _tensor(self, value: Leaf, path: tuple[str, ...]) -> Json:
        name = self._names.get(id(value))
        if name is None:
            stem = name = ".".join(path) or "value"
            number = 1
            while name in self.tensors or name == "__metadata__":
                number += 1
                name = f"{stem}#{number}"
            self._names[id(value)] = name
            self.tensors[name] = value
        if isinstance(value, np.ndarray):
            return {TAG: "array", "name": name}
        kind = "tensor" if isinstance(value, Tensor) else "torch"
        found = {TAG: kind, "name": name, "dtype": str(value.dtype).removeprefix("torch.")}
        return {**found, "requires_grad": True} if value.requires_grad else found


def restored(tree: Json, tensor: Callable[[Json], object]) -> Any:
    """The value that a tree describes; `tensor` gives the value of a tensor's entry.

    Raises CheckpointError for what no `Description` writes.

    >>> restored({"$": "tuple", "items": [1, None]}, lambda entry: entry)
    (1, None)
    """
    if isinstance(tree, list):
        return [restored(item, tensor) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if TAG not in tree:
        return {key: restored(x, tensor) for key, x in tree.items()}
    kind = tree[TAG]
    try:
        if kind in ("tensor", "torch", "array"):
            return tensor(tree)
        if kind in ("dict", "OrderedDict"):
            pairs = [(restored(key, tensor), restored(x, tensor)) for key, x in tree["items"]]
            return dict(pairs) if kind == "dict" else _ordered(pairs, tree.get("metadata"))
        if kind in _MADE_OF_ITEMS:
            return _MADE_OF_ITEMS[kind]([restored(item, tensor) for item in tree["items"]])
        return _READ[kind](tree["value"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"the description of the values is damaged at {tree!r}") from error


def _ordered(pairs: list[tuple[Any, Any]], metadata: Json) -> OrderedDict[Any, Any]:
    found = OrderedDict(pairs)
    if metadata is not None:
        vars(found)["_metadata"] = restored(metadata, lambda entry: entry)
    return found


def entries(tree: Json) -> Iterable[Json]:
    """The tensors' entries of a tree, in order."""
    found: list[Json] = []
    restored(tree, found.append)
    return found


def to_text(tree: Json) -> str:
    """A tree as text: one value has one text."""
    return json.dumps(tree, separators=(",", ":"), allow_nan=False)


_NOT_PLAIN = object()
_SEQUENCES = (list, tuple, set, frozenset, torch.Size)
_MADE_OF_ITEMS: dict[str, Callable[[list[Any]], object]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "Size": torch.Size,
}


def _scalar(value: object) -> Json:
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else _tagged("float", repr(value))
    if isinstance(value, np.generic):
        return {TAG: "numpy", "value": [value.dtype.name, _scalar(value.item())]}
    if isinstance(value, bool | int | float | str):  # a subclass, such as a scale
        return _scalar(_plain(value))
    if isinstance(value, complex):
        return _tagged("complex", repr(value))
    if isinstance(value, bytes):
        return _tagged("bytes", base64.b64encode(value).decode())
    if isinstance(value, torch.dtype):
        return _tagged("dtype", str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return _tagged("device", str(value))
    if isinstance(value, Sbp):
        return _tagged("sbp", value.short)
    if isinstance(value, Placement):
        return {TAG: "placement", "value": [value.type, value.ranks.tolist()]}
    return _NOT_PLAIN


def _plain(value: bool | int | float | str) -> object:
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def _tagged(kind: str, text: str) -> Json:
    return {TAG: kind, "value": text}


def read_dtype(name: str) -> torch.dtype:
    """The dtype of this name. Raises CheckpointError for another word."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise CheckpointError(f"{name!r} is no dtype of this version of torch")
    return found


def _numpy(value: Any) -> object:
    name, number = value
    return np.dtype(name).type(restored(number, lambda entry: entry))


_READ: dict[str, Callable[[Any], object]] = {
    "float": float,
    "complex": complex,
    "numpy": _numpy,
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "dtype": read_dtype,
    "device": torch.device,
    "sbp": lambda text: parse(text)[0],
    "placement": lambda value: Placement(value[0], value[1]),
}
