"""Recorded step: a step that writes, in halves; the device's is in a CUDA graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from ...engine.commit import Change, Write


class HostHalf(NamedTuple):
    """What the host does in one call: the numbers that kernels read, and what else changes."""

    numbers: list[float]
    changes: list[Change]


class Recording(ABC):
    """A step on the memory that it had when it was recorded."""

    @abstractmethod
    def form(self) -> object:
        """What is compiled for it: the call before a capture has the same."""

    @abstractmethod
    def refresh(self) -> HostHalf | None:
        """The host's half of the next call; None if the launches no longer are what they were."""

    @abstractmethod
    def place(self, memory: torch.Tensor) -> None:
        """Let kernels read the numbers of the host from this memory, float64 on the device."""

    @abstractmethod
    def launch(self, given: Sequence[object]) -> None:
        """The device's half, on what the step is given."""

    @abstractmethod
    def static(self) -> list[torch.Tensor]:
        """The memory that it reads and writes besides."""


class Recordable(ABC):
    """What a step is still to write (`ProgramStep.pending`), which may be recorded."""

    @abstractmethod
    def __call__(self, *given: Any) -> Iterable[Write]:
        """The writes, of what the step is given."""

    @abstractmethod
    def why_not(self) -> str:
        """Why it cannot be; an empty text if it can."""

    @abstractmethod
    def record(self) -> Recording | None:
        """A recording; None if the step first has to be run once more."""
