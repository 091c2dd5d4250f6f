"""Scopes: the devices and the view of a job's ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..engine.placement import Placement
from .devices import read_ids, read_tag
from .session import session


class View:
    """A logical view; also a context manager, in which new jobs and variables have it.

    In the consistent view a blob is one logical tensor over all devices. In the mirrored view
    every device has a blob of its own, and the variables are the same on all of them.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"{self.name}_view()"

    def __enter__(self) -> View:
        session.scopes.append((self.name, None))
        return self

    def __exit__(self, *_: object) -> None:
        session.scopes.pop()


class DeviceScope:
    """Devices on which the ops of a block run; a context manager."""

    def __init__(self, device_tag: str, machine_device_ids: str | Sequence[str]) -> None:
        self.device_tag = read_tag(device_tag)
        self.machine_device_ids = read_ids(machine_device_ids)

    def __repr__(self) -> str:
        ids = [f"{machine}:{d.start}-{d.stop - 1}" for machine, d in self.machine_device_ids]
        return f"placement({self.device_tag!r}, {ids})"

    def devices(self) -> Placement:
        """The devices as ranks. Raises PlacementError for those that are not there."""
        return session.devices.placement(self.device_tag, self.machine_device_ids)

    def __enter__(self) -> DeviceScope:
        session.scopes.append((None, self.devices()))
        return self

    def __exit__(self, *_: object) -> None:
        session.scopes.pop()


def mirrored_view() -> View:
    """Every device has data of its own: data parallelism with lists.

    Example: `function_config.default_logical_view(flow.scope.mirrored_view())`.
    """
    return View("mirrored")


def consistent_view() -> View:
    """A blob is one logical tensor: data, model and mixed parallelism."""
    return View("consistent")


def placement(device_tag: str, machine_device_ids: str | Sequence[str]) -> DeviceScope:
    """The devices for the ops of a block: "gpu" or "cpu", and "machine:first-last", or a list.

    Raises OnefoldValueError for another tag, and PlacementError for devices that are not there.

    Example: `with flow.scope.placement("gpu", "0:0-3"): ...`
    """
    return DeviceScope(device_tag, machine_device_ids)


@contextmanager
def on_devices(devices: Placement) -> Iterator[None]:
    """The block whose ops run on some ranks."""
    session.scopes.append((None, devices))
    try:
        yield
    finally:
        session.scopes.pop()


@contextmanager
def of_job(view: str, devices: Placement) -> Iterator[None]:
    """The block in which a job is traced: nothing from outside it holds there."""
    outer = session.scopes
    session.scopes = [(view, devices)]
    try:
        yield
    finally:
        session.scopes = outer


def current_view(default: str) -> str:
    """The innermost view, or the default."""
    return next((view for view, _ in reversed(session.scopes) if view is not None), default)


def current_devices() -> Placement:
    """The innermost devices."""
    found = [devices for _, devices in session.scopes if devices is not None]
    return found[-1] if found else session.devices.everywhere(session.devices.main_tag())
