"""Variable memory: where the variables of a program are, which its CUDA graphs read there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import is_
from typing import TypeAlias

from ...engine.tensor import Shards
from ..call_list import Filled

Memory: TypeAlias = list[tuple[int, tuple[int, ...]]]  # addresses and strides

_OFTEN = 2  # runs in a row in which a variable moves, after which it is copied


class VariableMemory:
    """The memory of variables that stay where they are.

    One that has moved since the last run, and before that run, is to be copied from then on.
    """

    def __init__(self, places: Sequence[int]) -> None:
        self._places = [*places]
        self._memory: list[Memory] = []
        self._found: list[Shards] = []  # what was there at the last run, of the same memory
        self._moved: Counter[int] = Counter()  # by place, in how many runs in a row

    def look(self, places: Filled) -> tuple[list[Memory], list[int]]:
        """The memory of all variables, and the places of those that must be copied now."""
        copied: list[int] = []
        found = [places[place] for place in self._places]
        if len(found) == len(self._found) and all(map(is_, found, self._found)):
            self._moved.clear()
            return self._memory, copied
        memory = [[(part.data_ptr(), part.stride()) for part in shards] for shards in found]
        if memory == self._memory:
            self._moved.clear()
            self._found = found
        else:
            self._found = []
            copied = self._note_moves(memory)
        return self._memory, copied

    def _note_moves(self, memory: list[Memory]) -> list[int]:
        before, now = dict(zip(self._places, self._memory, strict=False)), {}
        copied = []
        for place, at in zip(self._places, memory, strict=True):
            self._moved[place] = self._moved[place] + 1 if at != before.get(place, at) else 0
            if self._moved[place] < _OFTEN:
                now[place] = at
            else:
                copied.append(place)
        self._places, self._memory = [*now], [*now.values()]
        return copied
