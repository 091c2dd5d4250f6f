"""Copies of modules for lists of devices: the module itself, since there is one device here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..module import Module
from .device_parts import check_one

__all__ = ["replicate"]


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """The module for each device; raises OnefoldNotImplementedError for several."""
    check_one("replicate", devices)
    return [network]
