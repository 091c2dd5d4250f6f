"""Who accessed a tensor's memory in a launch, and the races that this shows.

Two accesses are a race if one of them writes and nothing orders them: those of two programs, and
those of two threads of a program with no barrier between them. Only the compiler knows which thread
has an element. Here elements with one number, in blocks of one size, are taken to have the same
thread. A load after a store is a race even then, since loops load ahead of the stores in them.

Only the last write and the last read of each element are kept, as by Flanagan and Freund,
"FastTrack: efficient and precise dynamic race detection", PLDI 2009.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

NEVER = -1
SEVERAL = -2  # programs
ATOMIC = -3  # by any program
DIFFERENT = -1  # threads


class Race(NamedTuple):
    """Elements whose access is in a race with an earlier one."""

    elements: int
    first: int  # byte
    earlier: str  # what was done: "read" or "written"
    phase: int  # when, if it is not SEVERAL or ATOMIC


class Block(NamedTuple):
    """Elements of one size that are accessed at once."""

    at: np.ndarray  # bytes from the start of the memory
    lanes: np.ndarray  # numbers; of those with the same one, a thread has all
    size: int


class AccessRecord:
    """The last accesses of a tensor's memory, in units of the smallest size that was accessed.

    A phase is the part of a program between two barriers. They are numbered through all programs,
    so those of the running program are the ones from its first on.
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.unit = 0

    def read(self, block: Block, phase: int, first: int) -> Race | None:
        """Note that a phase of the program with this first phase reads elements."""
        at, lanes = self._units(block)
        written, read = self.written[at], self.read_in[at]
        race = self._plain_race(at, _others(written, first) | (written == phase))
        again = (read == phase) & (self.reader[at] != lanes)
        self.read_in[at] = np.where(_others(read, first), SEVERAL, phase)
        self.reader[at] = np.where(again, DIFFERENT, lanes)
        self.reader[at[self.reader[at] != lanes]] = DIFFERENT
        return race

    def write(self, block: Block, phase: int, first: int) -> Race | None:
        """Note that a phase writes elements."""
        at, lanes = self._units(block)
        written = self.written[at]
        again = _others(written, first) | ((written == phase) & (self.writer[at] != lanes))
        race = self._plain_race(at, again) or self._read_race(at, lanes, phase, first)
        self.written[at] = phase
        self.writer[at] = lanes
        return race or self._race(at, self.writer[at] != lanes, "written", self.written)

    def update(self, block: Block, phase: int, first: int) -> Race | None:
        """Note that a phase makes atomic updates, which are in no race with each other."""
        at, lanes = self._units(block)
        written = self.written[at]
        wrong = _others(written, first) | (written == phase)
        race = self._race(at, wrong, "written", self.written)
        race = race or self._read_race(at, lanes, phase, first)
        self.updated[at] = True
        return race

    def _plain_race(self, at: np.ndarray, wrong: np.ndarray) -> Race | None:
        """The race of an access that is not atomic with what is wrong, or with atomic updates."""
        updated = self.updated[at]
        phases = np.where(self.updated, ATOMIC, self.written) if updated.any() else self.written
        return self._race(at, wrong | updated, "written", phases)

    def _read_race(self, at: np.ndarray, lanes: np.ndarray, phase: int, first: int) -> Race | None:
        read = self.read_in[at]
        wrong = _others(read, first) | ((read == phase) & (self.reader[at] != lanes))
        return self._race(at, wrong, "read", self.read_in)

    def _units(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """The units of the elements, and their lanes."""
        at, lanes, size = block
        if not self.unit:
            self.unit = size
            count = -(-self.nbytes // size)
            self.written, self.read_in = np.full((2, count), NEVER, np.int32)
            self.writer, self.reader = np.zeros((2, count), np.int64)
            self.updated = np.zeros(count, bool)
        elif size < self.unit:
            parts, self.unit = self.unit // size, size
            self.written, self.read_in = self.written.repeat(parts), self.read_in.repeat(parts)
            self.writer, self.reader = self.writer.repeat(parts), self.reader.repeat(parts)
            self.updated = self.updated.repeat(parts)
        units, each = at // self.unit, size // self.unit
        if each == 1:
            return units, lanes
        return (units[:, None] + np.arange(each)).ravel(), lanes.repeat(each)

    def _race(
        self, at: np.ndarray, wrong: np.ndarray, earlier: str, phases: np.ndarray
    ) -> Race | None:
        if not wrong.any():
            return None
        unit = int(at[wrong.argmax()])
        return Race(int(np.count_nonzero(wrong)), unit * self.unit, earlier, int(phases[unit]))


def _others(phases: np.ndarray, first: int) -> np.ndarray:
    """Whether these are phases of another program than that with this first phase."""
    others: np.ndarray = (phases < first) & (phases != NEVER)
    return others
