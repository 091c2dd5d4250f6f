"""Utilities beside the engine, such as `data`; each is imported when it is first used."""

from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

ON_DEMAND = ("checkpoint", "custom_op", "data", "dtensor", "global_view", "tensor")


def __getattr__(name: str) -> _ModuleType:
    if name in ON_DEMAND:
        return _import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
