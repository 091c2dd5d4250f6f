"""Graph: capture, stage, plan and run a training step."""

from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

# They import what most programs never need.
ON_DEMAND = ("hardware", "layouts", "report", "simulator")


def __getattr__(name: str) -> _ModuleType:
    if name in ON_DEMAND:
        return _import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
