"""The number of devices of a job program, and their ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..distributed.world import world
from ..engine.placement import Placement
from ..env import DEVICE
from ..errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError, PlacementError

TAGS = ("cpu", "gpu")


class Devices:
    """The machines of a program and the devices of each; all machines have the same number.

    Rank `machine * per_machine + device` is a device. In one process they are virtual ranks, of
    which there are as many as are asked for; under the launcher each is a process.
    """

    def __init__(self) -> None:
        self.counts = {"gpu": 1, "cpu": 1}
        self.chosen: set[str] = set()  # the tags whose count the program has given
        self.machines = 1
        self.fixed = False  # whether a job was traced for these devices

    def set_count(self, tag: str, count: int) -> None:
        """Use so many devices of a kind on each machine.

        Raises OnefoldValueError where there are fewer, OnefoldRuntimeError once jobs are traced.
        """
        self._check_free(f"config.{tag}_device_num", count)
        here = world()
        if here.launched and count * self.machines > here.size:
            raise OnefoldValueError(
                f"config.{tag}_device_num({count}) on {_machines(self.machines)} asks for "
                f"{count * self.machines} devices, but the launcher started {here.size} "
                "processes, and each is one device: start more with --nproc_per_node, or ask for "
                "fewer devices"
            )
        self.counts[tag] = count
        self.chosen.add(tag)

    def set_machines(self, count: int) -> None:
        """Use so many machines. Raises as `set_count`."""
        self._check_free("config.machine_num", count)
        self.machines = count

    def _check_free(self, what: str, count: int) -> None:
        if isinstance(count, bool) or not isinstance(count, int):
            raise OnefoldTypeError(f"{what} needs an integer, but got {count!r}")
        if count < 1:
            raise OnefoldValueError(f"{what} needs at least 1, but got {count}")
        if self.fixed:
            raise OnefoldRuntimeError(
                f"{what}({count}) comes too late: jobs were traced for the devices that there "
                "were; call it before the first job is called and before CheckPoint().init()"
            )

    def main_tag(self) -> str:
        """The kind of device that jobs use where no scope says another."""
        return "cpu" if self.chosen == {"cpu"} else "gpu"

    def everywhere(self, tag: str) -> Placement:
        """All devices of a kind."""
        return Placement(device_type(tag), list(range(self.machines * self.counts[tag])))

    def placement(self, tag: str, ids: Sequence[tuple[int, range]]) -> Placement:
        """Some devices of a kind. Raises PlacementError for those that are not there."""
        ranks = []
        for machine, devices in ids:
            if machine >= self.machines:
                raise PlacementError(
                    f"placement {tag!r} names machine {machine}, but there "
                    f"{'is only machine 0' if self.machines == 1 else f'are {self.machines}'}; "
                    "say how many with flow.config.machine_num"
                )
            for device in devices:
                if device >= self.counts[tag]:
                    raise PlacementError(
                        f"placement {tag!r} names device {device} of machine {machine}, but each "
                        f"machine has {self.counts[tag]}: devices 0 to {self.counts[tag] - 1}; "
                        f"say how many with flow.config.{tag}_device_num"
                    )
                ranks.append(machine * self.counts[tag] + device)
        return Placement(device_type(tag), ranks)


def device_type(tag: str) -> str:
    """The type of a placement for a tag; "gpu" is the CPU on machines that have none."""
    if tag == "gpu" and torch.cuda.is_available() and DEVICE.read() != "cpu":
        return "cuda"
    return "cpu"


def read_tag(tag: str) -> str:
    """A device tag. Raises OnefoldValueError for an unknown one."""
    if tag not in TAGS:
        raise OnefoldValueError(f"the device tag must be 'cpu' or 'gpu', but got {tag!r}")
    return tag


def read_ids(machine_device_ids: str | Sequence[str]) -> tuple[tuple[int, range], ...]:
    """What "0:0-3", or a list of such, names: machines and their devices.

    >>> read_ids(["0:0-1", "1:2"])
    ((0, range(0, 2)), (1, range(2, 3)))
    """
    given = (machine_device_ids,) if isinstance(machine_device_ids, str) else machine_device_ids
    found = []
    for text in given:
        machine, colon, devices = str(text).removeprefix("@").partition(":")
        first, dash, last = devices.partition("-")
        numbers = (machine, first, last) if dash else (machine, first, first)
        if not colon or not all(number.isdecimal() for number in numbers):
            raise PlacementError(
                f"devices are given as 'machine:first-last' or 'machine:device', such as '0:0-3', "
                f"but got {text!r}"
            )
        if int(numbers[2]) < int(numbers[1]):
            raise PlacementError(f"{text!r} names no device: {last} comes before {first}")
        found.append((int(machine), range(int(numbers[1]), int(numbers[2]) + 1)))
    if not found:
        raise PlacementError("a placement needs at least one device, such as '0:0'")
    return tuple(found)


def _machines(count: int) -> str:
    return "one machine" if count == 1 else f"{count} machines"
