"""Device scalars: numbers that a step computes for its update, kept on the tensors' devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


class DeviceScalar:
    """A 0-d tensor, with a copy for every device and dtype that asks; reading it waits for it.

    >>> number = DeviceScalar(torch.tensor(0.5, dtype=torch.float64))
    >>> number.on(torch.device("cpu"), torch.float32), float(number)
    (tensor(0.5000), 0.5)
    """

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value
        self._copies: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}

    @staticmethod
    def of(number: float) -> DeviceScalar:
        """A number of the host's."""
        return DeviceScalar(torch.tensor(number, dtype=torch.float64))

    def on(self, device: torch.device, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """The number there; nobody may write into it."""
        found = self._copies.get((device, dtype))
        if found is None:
            found = self.value.to(device, dtype, non_blocking=True)
            self._copies[device, dtype] = found
        return found

    def times(self, other: DeviceScalar | None) -> DeviceScalar:
        if other is None:
            return self
        return DeviceScalar(self.value * other.on(self.value.device))

    def __float__(self) -> float:
        return float(self.value.item())

    def __int__(self) -> int:
        return int(self.value.item())

    def __repr__(self) -> str:
        return f"DeviceNumber({float(self)})"


@dataclass(frozen=True)
class Given:
    """What an update is given besides gradients."""

    lr: float | torch.Tensor = 0.0  # of the group; a 0-d tensor may be on any device
    scale: DeviceScalar | None = None  # multiplies the gradients first
    found_inf: DeviceScalar | None = None  # 1 where nothing is to change, else 0

    def rate(self, device: torch.device) -> float | torch.Tensor:
        """The learning rate; on the device, if it is a tensor."""
        lr = self.lr
        return lr.to(device, non_blocking=True) if isinstance(lr, torch.Tensor) else lr

    def on(self, like: torch.Tensor) -> dict[str, Any]:
        """As arguments of the kernels that update tensors like this one."""
        wide = torch.float64 if like.dtype in _DOUBLE else torch.float32
        scale, found = self.scale, self.found_inf
        return {
            "scale": None if scale is None else scale.on(like.device, wide),
            "found_inf": None if found is None else found.on(like.device, torch.float32),
        }


_DOUBLE = (torch.float64, torch.complex128)


def free_to_read(number: DeviceScalar) -> bool:
    """Whether reading the number waits for no device."""
    return number.value.device.type == "cpu"
