"""Special functions, under the names of `torch.special`."""

from __future__ import annotations

from .engine.names import Function
from .engine.ops import namespaces as _namespaces

globals().update(_namespaces.namespace("special"))


def __getattr__(name: str) -> Function:
    raise _namespaces.unknown("special", name)
