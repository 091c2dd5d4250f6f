"""Windows of signals, under the names of `torch.signal.windows`."""

from __future__ import annotations

from ..names import Function
from . import namespaces as _namespaces

globals().update(_namespaces.namespace("signal.windows"))


def __getattr__(name: str) -> Function:
    raise _namespaces.unknown("signal.windows", name)
