"""Overlapped copies: those to the host and back, on a stream of their own that steps wait for."""

from __future__ import annotations

from ..host_copies import FETCH, OFFLOAD, RELEASE, WAIT
from ..ir import ProgramStep
from ..memory_traffic import local_bytes

BEGINS = OFFLOAD, FETCH  # the origins of steps that begin a copy
ENDS = RELEASE, WAIT  # and of those that wait for it


class OverlappedCopies:
    """The copies of one rank, one after the other, while its steps run."""

    def __init__(self, bandwidth: float, rank: int) -> None:
        self._bandwidth, self._rank = bandwidth, rank
        self._free = 0.0  # when the last copy is done
        self._done: dict[int, float] = {}  # by the number of what a copy makes, when it is there
        self.seconds = 0.0  # of all copies

    def begin(self, step: ProgramStep, now: float) -> None:
        """Begin a copy at the time `now`, in seconds."""
        taken = local_bytes(step.source.meta, self._rank) / self._bandwidth
        self.seconds += taken
        self._free = self._done[step.outputs[0].number] = max(now, self._free) + taken

    def wait(self, step: ProgramStep, now: float) -> float:
        """The seconds that a step waits for the copy that it reads."""
        copied = next(step.reads())
        return max(self._done.get(copied.number, 0.0) - now, 0.0)
