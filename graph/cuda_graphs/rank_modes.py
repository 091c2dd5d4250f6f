"""Rank modes: how a call of a graph runs that captures communication, alike on all ranks.

NCCL wants a collective launched by a CUDA graph on all ranks of a communicator or on none, and a
graph launched only together with those that the other ranks captured in the same call. But each
rank decides by what it has: its parameter moved, its profile looks at each step, its capture
failed. So at the start of a call every rank proposes the most that it can do, and all do the least
that any of them proposed. That is one small message between hosts (`rank_agreement`).

No rank ever replays while another captures, or runs one step after the other:

- What a rank proposes, it can do: it looks at its memory in the same call, before it proposes. All
  learn the same least proposal, and all follow it exactly.
- All replay only if all proposed to, so each has graphs of a capture that it finished. Graphs are
  made in calls in which all capture, and such a call, and one that warms up, begins by dropping
  the older ones. So a rank that lost its graphs, by itself or by an error, makes all drop theirs,
  and the graphs of all ranks are of one and the same call.
- A capture may fail on one rank alone. Therefore a graph is not launched in the call that captures
  it before all ranks have announced that they captured it; if one did not, all run its steps one by
  one, and never capture communication again.

The message is not sent during the call before, although it could wait there unseen: between calls
a program may move a parameter, change a precision or begin a profile, and whoever had promised a
replay would then compute with what is no longer true. It is begun before inputs are copied into
static memory and read after that, and the device is still busy with the call before.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

_RANKS = 1 << 32  # more than there are ranks


class Mode(IntEnum):
    """How a call runs; a greater one captures or replays more."""

    NEVER = 0  # as without CUDA graphs, from now on
    AS_EVER = 1  # as without CUDA graphs, this time
    WARM_UP = 2  # one call after the other, on static memory
    CAPTURE = 3
    REPLAY = 4


class Verdict(NamedTuple):
    """What all ranks do, the first rank that proposed it, and whether they plan the same order."""

    mode: Mode
    rank: int
    same: bool


def pack(mode: Mode, rank: int, order: int) -> list[int]:
    """What a rank announces: its proposal, and a checksum of the order of communication."""
    return [mode * _RANKS + rank, order, -order]


def unpack(least: Sequence[int]) -> Verdict:
    """What follows from the least of the numbers that ranks announced.

    >>> unpack([min(pair) for pair in zip(pack(Mode.REPLAY, 0, 7), pack(Mode.WARM_UP, 1, 7))])
    Verdict(mode=<Mode.WARM_UP: 2>, rank=1, same=True)
    """
    first, order, negative = least
    mode, rank = divmod(first, _RANKS)
    same = order == -negative
    return Verdict(Mode(mode) if same else Mode.NEVER, rank, same)


class Progress:
    """How far one rank is on the way to a replay."""

    def __init__(self) -> None:
        self._next = Mode.AS_EVER

    @property
    def over(self) -> bool:
        """Whether all ranks agreed never to capture."""
        return self._next is Mode.NEVER

    def restart(self) -> None:
        """Graphs and static memory were lost. The next call runs without graphs."""
        self._next = min(self._next, Mode.WARM_UP)

    def propose(self, most: Mode = Mode.REPLAY) -> Mode:
        """The most that the next call can do."""
        return min(self._next, most)

    def begin(self, agreed: Mode) -> bool:
        """Hear what all ranks do; whether it begins without the graphs of earlier calls."""
        if agreed is Mode.NEVER:
            self._next = Mode.NEVER
        return agreed in (Mode.WARM_UP, Mode.CAPTURE)

    def finish(self, agreed: Mode) -> None:
        """All of it was done. A call that an error ended does not count."""
        if agreed is Mode.AS_EVER:
            self._next = max(self._next, Mode.WARM_UP)
        elif not self.over:
            self._next = Mode(min(agreed + 1, Mode.REPLAY))
