"""Selects the function for the local work of an op: the torch reference or its Triton kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, TypeVar, cast

from ..env import KERNELS
from . import gpu
from .scalar_expression import is_declared

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
_HERE = __package__ or "kernels"
_POINTWISE = f"{gpu.__name__}.pointwise.pointwise_kernels"


def uses_triton(device_type: str) -> bool:
    """Whether Triton kernels do the work on this device type.

    `ONEFOLD_KERNELS` decides: auto (Triton on cuda), triton (on every device; on the CPU in
    Triton's interpreter) or torch (never).
    """
    chosen = KERNELS.read()
    return chosen == "triton" or (chosen == "auto" and device_type == "cuda")


def pick(reference: F, device_type: str) -> F:
    """The function to call for a torch reference on this device type.

    This is its Triton kernel if `uses_triton`, and the reference itself otherwise, or if there is
    no Triton kernel (`kernels/coverage.py` lists the reasons).
    """
    if not uses_triton(device_type):
        return reference
    return cast(F, _replayed_kernel(reference) or reference)


def pick_into(reference: Function, into: Function, device_type: str) -> Function:
    """The function to call with `out=` for a torch reference whose `out=` variant is `into`.

    A Triton kernel without such a variant allocates its result.
    """
    kernel = triton_kernel(reference) if uses_triton(device_type) else None
    if kernel is None:
        return into
    replayed = pick(reference, device_type)
    if takes_out(kernel):
        return replayed

    def allocating(*args: Any, out: Any) -> Any:
        return replayed(*args)

    return allocating


def takes_out(triton_kernel: Function) -> bool:
    """Whether a Triton kernel can write its result into given memory."""
    return isinstance(triton_kernel, import_module(_POINTWISE).Pointwise)


@cache
def _replayed_kernel(reference: Function) -> Function | None:
    chosen = triton_kernel(reference)
    if chosen is None:
        return None
    found: Function = import_module(f"{gpu.__name__}.launch.trace_cache").replayed(chosen)
    return found


@cache
def triton_kernel(reference: Function) -> Function | None:
    """The Triton function with the name and the arguments of a torch reference, if there is one.

    For `kernels/<family>_ref.py` it is in `kernels/gpu/<folder>/<family>_kernels.py`. Those
    modules are loaded here and not with the package: Triton takes long to import, and on the CPU
    no program needs it.
    """
    module = getattr(reference, "__module__", None) or ""
    if module.startswith(f"{_HERE}.") and not is_declared(reference):
        found = _triton_module(module.removeprefix(f"{_HERE}.").removesuffix("_ref"))
        return getattr(found, reference.__name__, None)
    function: Function | None = import_module(_POINTWISE).of_torch(reference)
    return function


@cache
def _triton_module(family: str) -> ModuleType | None:
    """The module `gpu/<folder>/<family>_kernels.py`, if there is one."""
    for folder in iter_modules(gpu.__path__):
        name = f"{gpu.__name__}.{folder.name}.{family}_kernels"
        if find_spec(name) is not None:
            return import_module(name)
    return None
