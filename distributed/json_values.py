"""Plain values as JSON and back, for messages between processes and for files, without pickle."""

from __future__ import annotations

import base64
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import torch

from .. import errors
from ..errors import OnefoldError, OnefoldTypeError, OnefoldValueError

Json: TypeAlias = Any  # what json.dumps takes
Path: TypeAlias = tuple[str, ...]
TAG = "$"  # the key that marks an object of JSON as another value than a dict

_SEQUENCES = (list, tuple, set, frozenset, torch.Size)


def reject(value: object, path: Path) -> Json:
    """The default of `encode` for values of other types: an error."""
    raise OnefoldTypeError(
        f"{'.'.join(path) or 'the value'} is a {type(value).__name__}, which cannot be sent: only "
        "numbers, strings, dtypes, errors and lists, tuples, sets and dicts of them can"
    )


def encode(value: Any, other: Callable[[object, Path], Json] = reject, path: Path = ()) -> Json:
    """A tree of plain values as JSON; `other` encodes values of other types, by their path.

    >>> encode({"lr": 0.1, "betas": (0.9, 0.99)})
    {'lr': 0.1, 'betas': {'$': 'tuple', 'items': [0.9, 0.99]}}
    """
    kind = type(value)
    if value is None or kind in (bool, int, str) or (kind is float and math.isfinite(value)):
        return value
    if kind in _SCALARS:
        name, write = _SCALARS[kind]
        return {TAG: name, "value": write(value)}
    if kind in (dict, OrderedDict):
        return _encode_dict(value, other, path)
    if kind in _SEQUENCES:
        listed = [encode(item, other, (*path, str(i))) for i, item in enumerate(value)]
        if kind in (set, frozenset):  # the order of strings differs from process to process
            listed.sort(key=to_text)
        return listed if kind is list else {TAG: kind.__name__, "items": listed}
    if isinstance(value, OnefoldError):
        return {TAG: "error", "value": [kind.__name__, str(value)]}
    return other(value, path)


def _encode_dict(value: Mapping[Any, Any], other: Callable[[Any, Path], Json], path: Path) -> Json:
    items = [(key, encode(x, other, (*path, str(key)))) for key, x in value.items()]
    if type(value) is dict and TAG not in value and all(type(key) is str for key in value):
        return dict(items)
    pairs = [[encode(key, other, (*path, str(key))), x] for key, x in items]
    found: dict[str, Json] = {TAG: type(value).__name__, "items": pairs}
    metadata = getattr(value, "_metadata", None)  # of a module's state: versions
    if metadata is not None:
        found["metadata"] = encode(metadata, other, (*path, "_metadata"))
    return found


def _unknown_tag(tree: Json) -> object:
    raise OnefoldValueError(f"no value has the tag {tree[TAG]!r}")


def decode(tree: Json, other: Callable[[Json], object] = _unknown_tag) -> Any:
    """The value that a tree describes; `other` decodes objects with an unknown tag.

    Raises ValueError, TypeError, KeyError or AttributeError for what `encode` does not write.

    >>> decode({"$": "tuple", "items": [1, None]})
    (1, None)
    """
    if isinstance(tree, list):
        return [decode(item, other) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if TAG not in tree:
        return {key: decode(x, other) for key, x in tree.items()}
    kind = tree[TAG]
    if kind in ("dict", "OrderedDict"):
        pairs = [(decode(key, other), decode(x, other)) for key, x in tree["items"]]
        return dict(pairs) if kind == "dict" else _ordered(pairs, tree.get("metadata"))
    if kind in _MADE_OF_ITEMS:
        return _MADE_OF_ITEMS[kind](decode(item, other) for item in tree["items"])
    if kind in _READ:
        return _READ[kind](tree["value"])
    return other(tree)


def to_text(tree: Json) -> str:
    """A tree as text: one value has one text."""
    return json.dumps(tree, separators=(",", ":"), allow_nan=False)


def read_dtype(name: str) -> torch.dtype:
    """The dtype of this name. Raises OnefoldValueError for another word."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise OnefoldValueError(f"{name!r} is not a dtype of this version of torch")
    return found


def _ordered(pairs: list[tuple[Any, Any]], metadata: Json) -> OrderedDict[Any, Any]:
    found = OrderedDict(pairs)
    if metadata is not None:
        vars(found)["_metadata"] = decode(metadata)
    return found


def _read_error(value: Any) -> OnefoldError:
    name, text = value
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, OnefoldError)):
        raise OnefoldValueError(f"{name!r} is not an error of onefold")
    return kind(text)


_MADE_OF_ITEMS: dict[str, Callable[[Iterable[Any]], object]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "Size": lambda items: torch.Size(list(items)),
}

_SCALARS: dict[type, tuple[str, Callable[[Any], Json]]] = {
    float: ("float", repr),  # inf and nan, which JSON lacks
    complex: ("complex", repr),
    bytes: ("bytes", lambda value: base64.b64encode(value).decode()),
    torch.dtype: ("dtype", lambda value: str(value).removeprefix("torch.")),
    torch.device: ("device", str),
}
_READ: dict[str, Callable[[Any], object]] = {
    "float": float,
    "complex": complex,
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "dtype": read_dtype,
    "device": torch.device,
    "error": _read_error,
}
