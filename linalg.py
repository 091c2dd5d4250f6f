"""Linear algebra, under the names of `torch.linalg`."""

from __future__ import annotations

from .engine.names import Function
from .engine.ops import namespaces as _namespaces
from .errors import LinAlgError

__all__ = ["LinAlgError", *_namespaces.namespace("linalg")]  # noqa: PLE0604

globals().update(_namespaces.namespace("linalg"))


def __getattr__(name: str) -> Function:
    raise _namespaces.unknown("linalg", name)
