"""Small Python objects as JSON, on their way to another process: reading them runs no code.

Beyond what JSON has: tuples, bytes, dicts with any keys, and torch's dtypes.
"""

from __future__ import annotations

import json
from typing import TypeAlias

import torch

from ..errors import OnefoldTypeError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def to_wire(obj: object) -> bytes:
    """`obj` as bytes; the inverse is `from_wire`.

    OnefoldTypeError for what is not made of None, bool, int, float, str, bytes, dtypes, lists,
    tuples and dicts.
    """
    return json.dumps(_encode(obj)).encode()


def from_wire(data: bytes) -> object:
    """The object that `to_wire` made these bytes of. ValueError when they are not its bytes."""
    return _decode(json.loads(data))


def _encode(obj: object) -> Json:
    if obj is None or isinstance(obj, bool | int | float | str):
        return obj
    if isinstance(obj, list):
        return [_encode(each) for each in obj]
    if isinstance(obj, tuple):
        return {"tuple": [_encode(each) for each in obj]}
    if isinstance(obj, dict):
        return {"dict": [[_encode(key), _encode(value)] for key, value in obj.items()]}
    if isinstance(obj, bytes):
        return {"bytes": obj.hex()}
    if isinstance(obj, torch.dtype):
        return {"dtype": str(obj).removeprefix("torch.")}
    raise OnefoldTypeError(
        f"got a {type(obj).__name__}, which is not sent to other processes: send None, bool, int, "
        "float, str, bytes, a dtype, or lists, tuples and dicts of these"
    )


def _decode(data: Json) -> object:
    if isinstance(data, list):
        return [_decode(each) for each in data]
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    if kind == "tuple" and isinstance(content, list):
        return tuple(_decode(each) for each in content)
    if kind == "dict" and isinstance(content, list):
        return dict(_pair(each) for each in content)
    if kind == "bytes" and isinstance(content, str):
        return bytes.fromhex(content)
    if kind == "dtype" and isinstance(content, str):
        dtype = getattr(torch, content, None)
        if isinstance(dtype, torch.dtype):
            return dtype
    raise ValueError(f"no object is sent as {kind}: {content!r}")


def _pair(entry: Json) -> tuple[object, object]:
    if not isinstance(entry, list):
        raise ValueError(f"no entry of a dict is sent as {entry!r}")
    key, value = entry
    return _decode(key), _decode(value)
