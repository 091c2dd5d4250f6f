"""The names of `flow.autograd`: backward, grad, Function, modes, functional, saved-tensor hooks."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from . import (
    anomaly as anomaly_mode,
    autograd_function as function,
    forward_ad,
    functional_autograd as functional,
    grad_attributes as _leaves,  # noqa: F401  (importing it gives tensors their methods)
    grad_mode,
    legacy_variable,
    saved_tensors as graph,
)
from .anomaly import detect_anomaly, is_anomaly_enabled, set_detect_anomaly
from .autograd import backward_all as backward, grad
from .autograd_function import Function
from .grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from .gradcheck import gradcheck, gradgradcheck
from .legacy_variable import Variable

__all__ = [
    "Function",
    "Variable",
    "anomaly_mode",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "function",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_anomaly_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
]

__path__: list[str] = []  # compat/import_paths.py leads to what is below it


def __getattr__(name: str) -> ModuleType:
    if name == "variable":
        return legacy_variable
    if name == "profiler":  # stands above the engine, and is imported when it is first used
        return import_module(f"{__name__.partition('.')[0]}.autograd.profiler")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
