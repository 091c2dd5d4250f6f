"""Fourier transforms, under the names of `torch.fft`."""

from __future__ import annotations

from .engine.names import Function
from .engine.ops import namespaces as _namespaces

globals().update(_namespaces.namespace("fft"))


def __getattr__(name: str) -> Function:
    raise _namespaces.unknown("fft", name)
