"""Accumulation: whether the pieces of a job's batch can be micro-batches of its graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .blob import Blob


class Accumulation:
    """What a trace does with its batch: all that is fed is unpacked first, or some of it is not.

    Where all is, the graph runs one piece after the other and adds up gradients, so that one piece
    is in memory at a time. Else the pieces are parts of one program, with the same results.
    """

    def __init__(self) -> None:
        self.in_time = False  # whether unpack and pack have nothing left to do
        self._fed: Sequence[object] = ()
        self._unpacked: dict[int, int] = {}  # by identities of what is fed: the number of pieces
        self._uses_whole = False

    def begin(self, fed: Sequence[object]) -> None:
        """A trace begins with these arguments."""
        self._fed, self._unpacked, self._uses_whole = fed, {}, False

    def unpack(self, blob: Blob, count: int) -> None:
        """Hear that a blob is unpacked."""
        if any(blob is fed for fed in self._fed):
            self._unpacked[id(blob)] = count
        else:
            self._uses_whole = True

    def use_whole(self) -> None:
        """Hear of what needs all pieces at once."""
        self._uses_whole = True

    @property
    def count(self) -> int:
        """How many micro-batches there can be; 1 if there can be none."""
        counts = {self._unpacked.get(id(blob), 1) for blob in self._fed}
        return 1 if self._uses_whole or len(counts) != 1 else counts.pop()
