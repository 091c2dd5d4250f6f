"""The devices of a program; called before its first job is."""

from __future__ import annotations

from .session import session


def gpu_device_num(value: int) -> None:
    """Use so many GPUs on each machine; where there are none, so many devices of the CPU."""
    session.devices.set_count("gpu", value)


def cpu_device_num(value: int) -> None:
    """Use so many devices of the CPU on each machine."""
    session.devices.set_count("cpu", value)


def machine_num(value: int) -> None:
    """Use so many machines."""
    session.devices.set_machines(value)
