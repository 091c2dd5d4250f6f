"""Families: what the modules of kernels/gpu list, each of its own kernels."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from .configs import Tuned

_PACKAGE = __name__.rpartition(".")[0]


def modules() -> Iterator[ModuleType]:
    """The modules of kernels/gpu, by name."""
    for info in sorted(iter_modules([str(Path(__file__).parent)]), key=lambda info: info.name):
        yield import_module(f"{_PACKAGE}.{info.name}")


def listed(name: str) -> Iterator[Any]:
    """The parts of the lists that modules have by this name.

    >>> from onefold.kernels.gpu.families import listed
    >>> [tuned.kernel for tuned in listed("TUNED") if tuned.kernel == "matmul"]
    ['matmul']
    """
    for module in modules():
        yield from getattr(module, name, ())


def all_tuned() -> dict[str, Tuned]:
    """What can be tuned, by kernel."""
    return {tuned.kernel: tuned for tuned in listed("TUNED")}
