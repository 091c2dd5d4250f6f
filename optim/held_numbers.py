"""Held numbers: what the host computes for an update, in memory of the device that reads it.

So an update that is launched by a CUDA graph has the learning rate and the step of each call.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..kernels.update_rule_ref import Numbers, shared


class HeldNumbers:
    """The numbers of a rule, followed by weight decay, the learning rate and the step number.

    `place` gives them memory. With `on_device` some depend on what only the device knows, such as
    how many steps were skipped, and are computed there.
    """

    def __init__(
        self, numbers: Numbers, decay: float | None, rate: float | torch.Tensor, on_device: bool
    ) -> None:
        self.on_device = on_device
        self.flags = flags_of(numbers)
        self.size = len(values_of(numbers, decay, rate, 0))
        self._numbers = numbers
        self._dtype = rate.dtype if isinstance(rate, torch.Tensor) else torch.float64
        self._memory = torch.empty(0, dtype=torch.float64)

    def place(self, memory: torch.Tensor) -> None:
        """Read the numbers from this memory, in the order of `values_of`."""
        self._memory = memory

    @property
    def factors(self) -> torch.Tensor:
        """The numbers of the rule, and weight decay."""
        return self._memory[:-2]

    @property
    def lr(self) -> torch.Tensor:
        return self._memory[-2].to(self._dtype)

    @property
    def step(self) -> torch.Tensor:
        return self._memory[-1]

    def found(self, find: Callable[[], Numbers]) -> Numbers:
        """The numbers by name; those that `find` computes on the device are put into memory."""
        if self.on_device:
            for place, x in zip(self.factors, shared(find()).values(), strict=False):
                if isinstance(x, torch.Tensor):
                    place.copy_(x)
        return self._numbers


def values_of(
    numbers: Numbers, decay: float | None, rate: float | torch.Tensor, step: int
) -> list[float]:
    """The numbers that the host writes to the memory of `HeldNumbers`, padded to an even count."""
    found = [float(x) for x in shared(numbers).values()]
    if decay is not None:
        found.append(decay)
    return [*found, *[0.0] * (len(found) % 2), float(rate), float(step)]


def flags_of(numbers: Numbers) -> tuple[object, ...]:
    """The names of the numbers, with the values of those that are compiled in."""
    return tuple([(name, x if isinstance(x, bool) else None) for name, x in numbers.items()])
