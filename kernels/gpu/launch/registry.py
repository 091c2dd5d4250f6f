"""Registry: collects the lists that the modules of kernels/gpu define for their kernels."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

from ... import gpu
from .configs import Tuned


def modules() -> Iterator[ModuleType]:
    """The modules of kernels/gpu, by name."""
    for name in sorted(info.name for info in walk_packages(gpu.__path__, f"{gpu.__name__}.")):
        yield import_module(name)


def reference_of(module: ModuleType) -> ModuleType | None:
    """The module with the torch references of a module of kernels/gpu, if it has them."""
    family = module.__name__.rpartition(".")[2].removesuffix("_kernels")
    name = f"{gpu.__name__.rpartition('.')[0]}.{family}_ref"
    return import_module(name) if find_spec(name) is not None else None


def listed(name: str) -> Iterator[Any]:
    """The items of the lists that the modules define under this name.

    >>> from onefold.kernels.gpu.launch.registry import listed
    >>> [tuned.kernel for tuned in listed("TUNED") if tuned.kernel == "matmul"]
    ['matmul']
    """
    for module in modules():
        yield from getattr(module, name, ())


def all_tuned() -> dict[str, Tuned]:
    """All tunable kernels, by name."""
    return {tuned.kernel: tuned for tuned in listed("TUNED")}
