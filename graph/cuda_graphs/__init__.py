"""CUDA graphs: the launches of a program, recorded once and replayed without their host code."""

from importlib import import_module as _import_module
from types import ModuleType as _ModuleType


def __getattr__(name: str) -> _ModuleType:
    if name == "captured_calls":  # imported by the first graph that captures
        return _import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
