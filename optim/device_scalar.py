"""Device scalars: numbers that a step computes for its update, kept on the tensors' devices."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..kernels.staging import to_device
from .held_numbers import HeldNumbers


class DeviceScalar:
    """A 0-d tensor, copied on demand to devices and dtypes; reading it synchronizes.

    >>> number = DeviceScalar(torch.tensor(0.5, dtype=torch.float64))
    >>> number.on(torch.device("cpu"), torch.float32), float(number)
    (tensor(0.5000), 0.5)
    """

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value
        self._copies: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}

    @staticmethod
    def of(number: float) -> DeviceScalar:
        """A scalar of a number on the host."""
        return DeviceScalar(torch.tensor(number, dtype=torch.float64))

    def on(self, device: torch.device, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """The number on this device, which must not be written."""
        found = self._copies.get((device, dtype))
        if found is None:
            found = to_device(self.value, device, dtype)
            self._copies[device, dtype] = found
        return found

    def on_device_of(self, like: torch.Tensor) -> torch.Tensor:
        """The number for arithmetic with a tensor: on its device, in float64 or float32."""
        return self.on(like.device, torch.float64 if like.dtype in _DOUBLE else torch.float32)

    def times(self, other: DeviceScalar | None) -> DeviceScalar:
        if other is None:
            return self
        return DeviceScalar(self.value * other.on(self.value.device))

    def __float__(self) -> float:
        return float(self.value.item())

    def __int__(self) -> int:
        return int(self.value.item())

    def __repr__(self) -> str:
        return f"DeviceScalar({float(self)})"


class LocalStep(NamedTuple):
    """The inputs of an update of local tensors: numbers, or tensors on their device."""

    lr: float | torch.Tensor
    step: int | torch.Tensor = 0
    scale: torch.Tensor | None = None
    found_inf: torch.Tensor | None = None
    held: HeldNumbers | None = None

    def reading(self, held: HeldNumbers) -> LocalStep:
        """The same, with the numbers of the host read from memory."""
        step = self.step if isinstance(self.step, torch.Tensor) else held.step
        return self._replace(lr=held.lr, step=step, held=held)


class Given(NamedTuple):
    """The inputs of an update besides gradients."""

    lr: float | torch.Tensor = 0.0  # of the group; a 0-d tensor may be on any device
    scale: DeviceScalar | None = None  # multiplies the gradients first
    found_inf: DeviceScalar | None = None  # 1 where nothing is to change, else 0

    def is_skipped(self) -> bool:
        """Whether the step is skipped; synchronizes with the device."""
        return self.found_inf is not None and bool(int(self.found_inf))

    def rate(self, device: torch.device) -> float | torch.Tensor:
        """The learning rate; on the device, if it is a tensor."""
        lr = self.lr
        return to_device(lr, device) if isinstance(lr, torch.Tensor) else lr

    def local(self, like: torch.Tensor, step: int | DeviceScalar = 0) -> LocalStep:
        """The same for local tensors like this one, at this step."""
        found = self.found_inf
        count = step if isinstance(step, int) else step.on(like.device)
        if found is None and self.scale is None and not isinstance(self.lr, torch.Tensor):
            return LocalStep(self.lr, count)
        return LocalStep(
            self.rate(like.device),
            count,
            on_device_of(self.scale, like),
            None if found is None else found.on(like.device, torch.float32),
        )


def on_device_of(number: DeviceScalar | None, like: torch.Tensor) -> torch.Tensor | None:
    """`DeviceScalar.on_device_of` for a number that may be absent."""
    return None if number is None else number.on_device_of(like)


_DOUBLE = (torch.float64, torch.complex128)


def free_to_read(number: DeviceScalar) -> bool:
    """Whether the number can be read without synchronization."""
    return number.value.device.type == "cpu"
