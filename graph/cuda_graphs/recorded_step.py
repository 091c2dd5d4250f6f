"""Recorded step: a step that writes, in halves; the device's is in a CUDA graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from ...engine.commit import Change, Write


class HostHalf(NamedTuple):
    """The host's work in one call: the numbers that kernels read, and other changes."""

    numbers: list[float]
    changes: list[Change]


class Recording(ABC):
    """A step on the memory that it had when it was recorded."""

    @abstractmethod
    def form(self) -> object:
        """A key of its kernels, which must equal that of the call before the capture."""

    @abstractmethod
    def refresh(self) -> HostHalf | None:
        """The host's half of the next call; None if the launches have changed."""

    @abstractmethod
    def place(self, memory: torch.Tensor) -> None:
        """Make kernels read the numbers of the host from this memory, float64 on the device."""

    @abstractmethod
    def launch(self, given: Sequence[object]) -> None:
        """Launch the device's half on the inputs of the step."""

    @abstractmethod
    def static(self) -> list[torch.Tensor]:
        """The memory that it reads and writes besides."""


class Recordable(ABC):
    """The pending writes of a step (`ProgramStep.pending`), which may be recorded."""

    @abstractmethod
    def __call__(self, *given: Any) -> Iterable[Write]:
        """The writes, for the inputs of the step."""

    @abstractmethod
    def why_not(self) -> str:
        """Why it cannot be recorded; empty if it can."""

    @abstractmethod
    def record(self) -> Recording | None:
        """A recording; None if the step first has to be run once more."""
