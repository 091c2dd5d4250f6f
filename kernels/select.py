"""Select: which function does the work of a torch reference, decided when a plan is made."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..env import KERNELS
from .scalar_function import is_declared

Function = Callable[..., Any]
_HERE = __package__ or "kernels"


def uses_triton(device_type: str) -> bool:
    """Whether tensors on this device type are worked on by Triton kernels.

    `ONEFOLD_KERNELS` says so: auto (Triton on cuda), triton (everywhere; on the CPU in Triton's
    interpreter) or torch (nowhere).
    """
    chosen = KERNELS.read()
    return chosen == "triton" or (chosen == "auto" and device_type == "cuda")


def pick(reference: Function, device_type: str) -> Function:
    """What to call in place of a torch reference for tensors on this device type.

    That is its Triton twin where `uses_triton`, and the reference itself elsewhere or where it has
    none (`kernels/gpu/table.py` says why).
    """
    if not uses_triton(device_type):
        return reference
    return _planned_twin(reference) or reference


def pick_into(reference: Function, into: Function, device_type: str) -> Function:
    """What to call, with `out=`, in place of `into`: the form of a reference that takes it.

    A Triton kernel that has no such form allocates its result.
    """
    kernel = twin(reference) if uses_triton(device_type) else None
    if kernel is None:
        return into
    planned = pick(reference, device_type)
    if takes_out(kernel):
        return planned

    def allocating(*args: Any, out: Any) -> Any:
        return planned(*args)

    return allocating


def takes_out(twin: Function) -> bool:
    """Whether a Triton twin can put its result into memory that it is given."""
    return isinstance(twin, import_module(f"{_HERE}.gpu.pointwise").Pointwise)


@cache
def _planned_twin(reference: Function) -> Function | None:
    chosen = twin(reference)
    return None if chosen is None else import_module(f"{_HERE}.gpu.plans").planned(chosen)


@cache
def twin(reference: Function) -> Function | None:
    """The Triton function with the name and the arguments of a torch reference, if there is one.

    Modules of twins are loaded here and not with the package: Triton takes long to import, and on
    the CPU no program needs it.
    """
    module = getattr(reference, "__module__", None) or ""
    if module.startswith(f"{_HERE}.") and not is_declared(reference):
        family = module.removeprefix(f"{_HERE}.")
        if find_spec(f"{_HERE}.gpu.{family}") is None:
            return None
        found = import_module(f"{_HERE}.gpu.{family}")
        return getattr(found, reference.__name__, None)
    pointwise = import_module(f"{_HERE}.gpu.pointwise")
    function: Function | None = pointwise.of_torch(reference)
    return function
