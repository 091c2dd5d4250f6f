"""On the way: boxings that begin in one step and end in a later one, where they are needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..engine.tensor import Shards
from .ir import Program, Step


def in_two(program: Program) -> list[Step]:
    """The program's steps, with boxings that communicate in two where others stand in between.

    The first of the two makes no value and the second reads none. All ranks have the same steps,
    so they begin and end what they communicate in one order.
    """
    first: dict[int, int] = {}  # by the number of a value: the first step that reads it
    for index, step in enumerate(program.steps):
        for value in step.reads():
            first.setdefault(value.number, index)
    count = len(program.steps)
    ends: dict[int, list[Step]] = {}
    found: list[Step] = []
    for index, step in enumerate(program.steps):
        found += ends.pop(index, ())
        needed = first.get(step.outputs[0].number, count) if step.start is not None else index
        if step.start is None or needed == index + 1:
            found.append(step)
            continue
        message = _Message(step.start)
        found.append(replace(step, outputs=(), several=True, run=message.begin))
        ends.setdefault(needed, []).append(replace(step, inputs=(), run=message.end))
    return found + ends.pop(count, [])


class _Message:
    """One boxing: begun and ended once in each run."""

    def __init__(self, start: Callable[[Shards], Callable[[], Shards]]) -> None:
        self._start = start
        self._end: Callable[[], Shards] | None = None

    def begin(self, shards: Shards) -> tuple[()]:
        self._end = self._start(shards)
        return ()

    def end(self) -> Shards:
        end, self._end = self._end, None
        assert end is not None
        return end()
