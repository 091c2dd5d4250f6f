"""Machine: the constants by which eager and the search for layouts choose, from hardware files.

The files are those of `graph/hardware`, which describes and simulates whole machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent.parent / "graph" / "hardware"
_FILES = {"cpu": "cpu", "cuda": "h100"}
_USUAL = 1e6  # bytes of a message or collective for which layouts are chosen


@dataclass(frozen=True, slots=True)
class Link:
    """The cost of communication between ranks of one device type."""

    launch: float  # seconds per collective, whatever its size
    step: float  # seconds per round in which every rank sends one message
    message: float  # seconds per further message of the same round
    byte: float  # seconds per byte received
    remote: float  # the same between two placements, which may be on other machines


@dataclass(frozen=True, slots=True)
class Machine:
    """The constants of a device type: its link, and the rates of kernels on large tensors."""

    link: Link
    copy: float  # seconds per byte between the device and its host
    flop: float  # seconds per flop of matrix products
    byte: float  # seconds per byte that a kernel reads or writes


@cache
def machine(device_type: str) -> Machine:
    """The constants of a device type; its file is read when they are first asked for."""
    toml: Any = import_module("tomllib")  # most programs with one rank never need it
    content = toml.loads((_FOLDER / f"{_FILES[device_type]}.toml").read_text())
    peak, share = content["peak"], content["efficiency"]
    near, far = content["links"][0], content["links"][-1]
    return Machine(
        link=Link(
            near["launch"], near["latency"], near["message"], _per_byte(near), _per_byte(far)
        ),
        copy=1 / content["host"]["bandwidth"],
        flop=1 / (peak.get("bfloat16", peak["float32"]) * _best(share["matmul"])),
        byte=1 / (content["memory"]["bandwidth"] * _best(share["memory"])),
    )


def _per_byte(link: dict[str, Any]) -> float:
    curve = link["efficiency"]
    share = next((share for size, share in curve if size >= _USUAL), _best(curve))
    return float(1 / (link["bandwidth"] * share))


def _best(curve: list[list[float]]) -> float:
    """The share that the largest size reaches."""
    _, share = curve[-1]
    return share
