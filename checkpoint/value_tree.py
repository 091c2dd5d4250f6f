"""Nested values as JSON and named tensors, and back. Files hold these instead of pickles."""

from __future__ import annotations

import builtins
from argparse import Namespace
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from io import BytesIO
from pathlib import Path as FilePath, PurePath
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from ..distributed import json_values
from ..distributed.json_values import TAG, Json, Path, decode, encode
from ..engine.placement import Placement
from ..engine.sbp import Sbp, parse
from ..engine.tensor import Tensor
from ..engine.values import without_data
from ..errors import CheckpointError, OnefoldTypeError

Leaf: TypeAlias = Tensor | torch.Tensor | np.ndarray


class Description:
    """A pytree as JSON, and its tensors by name; a tensor that occurs twice has one name.

    Raises OnefoldTypeError, with the path, for a value of another type than those of state dicts,
    and OnefoldRuntimeError for a tensor without data.

    >>> Description([1, np.ones(2)]).tree
    [1, {'$': 'array', 'name': '1'}]
    """

    def __init__(self, value: object) -> None:
        self.tensors: dict[str, Leaf] = {}
        self._names: dict[int, str] = {}
        self._arrays: list[np.ndarray] = []
        self.tree = encode(value, self._other)

    def _other(self, value: object, path: Path) -> Json:
        if isinstance(value, (Tensor, torch.Tensor, np.ndarray)):
            return self._tensor(value, path)
        if isinstance(value, np.generic) and (
            value.dtype.char in _NUMBERS or value.dtype.kind in "US"
        ):
            # The names of numpy's strings are those of one length: "str32" is none to `np.dtype`.
            name = type(value).__name__ if value.dtype.kind in "US" else value.dtype.name
            return {TAG: "numpy", "value": [name, encode(value.item(), self._other, path)]}
        if isinstance(value, Sbp):
            return {TAG: "sbp", "value": value.short}
        if isinstance(value, Placement):
            return {TAG: "placement", "value": [value.type, value.ranks.tolist()]}
        for kind in (bool, int, float, str):
            if isinstance(value, kind):  # a subclass, such as a scale
                return encode(kind(value))
        for tag, plain in _PLAIN.items():
            if type(value) in plain.types:
                return {TAG: tag, "value": encode(plain.parts(value), self._other, path)}
        raise OnefoldTypeError(
            f"cannot save {'.'.join(path) or 'the object'}, a {type(value).__name__}: files hold "
            "tensors, numbers, strings and dicts, lists, tuples and sets of them. Save its "
            "state_dict() instead, or the values that it is made from, as vars(x) gives"
        )

    def _tensor(self, value: Leaf, path: Path) -> Json:
        if isinstance(value, Tensor) and value.is_meta:
            raise without_data(value, f"{'.'.join(path) or 'a tensor'} was to be saved")
        if isinstance(value, np.ndarray) and id(value) not in self._names:
            self._arrays.append(value)  # whose identity is then of no other array
        name = self._names.get(id(value))
        if name is None:
            stem = name = ".".join(path) or "value"
            number = 1
            while name in self.tensors or name == "__metadata__":
                number += 1
                name = f"{stem}#{number}"
            self._names[id(value)] = name
            self.tensors[name] = _readable(value, path) if isinstance(value, np.ndarray) else value
        if isinstance(value, np.ndarray):
            found = {TAG: "array", "name": name}
            pairs = value.dtype.char == "D"  # which files hold as pairs of numbers
            return {**found, "dtype": "complex128"} if pairs else found
        kind = "tensor" if isinstance(value, Tensor) else "torch"
        found = {TAG: kind, "name": name, "dtype": str(value.dtype).removeprefix("torch.")}
        return {**found, "requires_grad": True} if value.requires_grad else found


def restored(tree: Json, tensor: Callable[[Json], object]) -> Any:
    """The value that a tree describes; `tensor` gives the value of a tensor's entry.

    Raises CheckpointError for a tree that no `Description` writes.
    """

    def other(entry: Json) -> object:
        if entry[TAG] in ("tensor", "torch", "array"):
            return tensor(entry)
        if entry[TAG] in _PLAIN:
            return _PLAIN[entry[TAG]].made(decode(entry["value"], other))
        return _READ[entry[TAG]](entry["value"])

    try:
        return decode(tree, other)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"the description of the values is damaged: {error}") from error


def entries(tree: Json) -> list[Json]:
    """The tensors' entries of a tree, in order."""
    found: list[Json] = []
    restored(tree, found.append)
    return found


def read_dtype(name: str) -> torch.dtype:
    """The dtype of this name. Raises CheckpointError for an unknown name."""
    try:
        return json_values.read_dtype(name)
    except ValueError as error:
        raise CheckpointError(str(error)) from error


_NUMBERS = "?bBhHiIlLqQefdFD"  # numpy's letters for the numbers that torch has


def _numpy(value: Any) -> object:
    name, number = value
    if name.startswith(("str", "bytes")):
        return (np.str_ if name.startswith("str") else np.bytes_)(decode(number))
    return np.dtype(name).type(decode(number))


def _readable(value: np.ndarray, path: Path) -> np.ndarray:
    """An array that torch can read, perhaps a copy. Raises OnefoldTypeError for other dtypes."""
    if value.dtype.char not in _NUMBERS:
        raise OnefoldTypeError(
            f"cannot save {'.'.join(path) or 'the object'}, an array of {value.dtype}: files hold "
            "arrays of numbers that tensors can have; save x.tolist() instead"
        )
    if not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    return value.copy() if any(stride < 0 for stride in value.strides) else value


class _Plain(NamedTuple):
    """What a type of the standard library consists of, and how it is made of that."""

    types: tuple[type, ...]
    parts: Callable[[Any], object]
    made: Callable[[Any], object]


def _defaults(value: defaultdict[Any, Any]) -> tuple[str | None, dict[Any, Any]]:
    make: Any = value.default_factory
    if make is None:
        return None, dict(value)
    name = getattr(make, "__name__", "")
    if not (isinstance(make, type) and getattr(builtins, name, None) is make):
        raise OnefoldTypeError(
            f"cannot save a defaultdict of {make!r}: files hold values and no programs. Save "
            "dict(...) of it instead"
        )
    return name, dict(value)


def _with_defaults(parts: Any) -> defaultdict[Any, Any]:
    name, items = parts
    make = None if name is None else getattr(builtins, name)
    if make is not None and not isinstance(make, type):
        raise ValueError(f"{name!r} is not a type")
    return defaultdict(make, items)


# The options of a program, which checkpoints often hold together with the weights.
_PLAIN: dict[str, _Plain] = {
    "Namespace": _Plain((Namespace,), vars, lambda names: Namespace(**names)),
    "SimpleNamespace": _Plain((SimpleNamespace,), vars, lambda names: SimpleNamespace(**names)),
    "Path": _Plain((type(PurePath()), type(FilePath())), str, FilePath),
    "BytesIO": _Plain((BytesIO,), BytesIO.getvalue, BytesIO),
    "range": _Plain((range,), lambda x: (x.start, x.stop, x.step), lambda parts: range(*parts)),
    "Counter": _Plain((Counter,), dict, Counter),
    "defaultdict": _Plain((defaultdict,), _defaults, _with_defaults),
    "deque": _Plain(
        (deque,), lambda x: (list(x), x.maxlen), lambda parts: deque(parts[0], parts[1])
    ),
}

_READ: dict[str, Callable[[Any], object]] = {
    "numpy": _numpy,
    "sbp": lambda text: parse(text)[0],
    "placement": lambda value: Placement(value[0], value[1]),
}
