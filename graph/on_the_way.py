"""On the way: boxings that begin in one step and end in a later one, where they are needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..engine.tensor import Shards
from .ir import Program, Step


def in_two(program: Program) -> list[Step]:
    """The program's steps, with boxings that communicate in two where others stand in between.

    The first of the two makes no value and the second reads none. All ranks have the same steps,
    so they begin and end what they communicate in one order. A boxing takes the memory of its
    input over when nothing else reads that.
    """
    readers: dict[int, list[int]] = {}  # by the number of a value: the steps that read it
    maker: dict[int, Step] = {}
    for index, step in enumerate(program.steps):
        for value in step.reads():
            readers.setdefault(value.number, []).append(index)
        maker.update((value.number, step) for value in step.outputs)
    wanted = {value.number for value in program.wanted()}
    count = len(program.steps)
    ends: dict[int, list[Step]] = {}
    found: list[Step] = []
    for index, step in enumerate(program.steps):
        found += ends.pop(index, ())
        if step.start is None:
            found.append(step)
            continue
        ((given,), (made,)) = step.inputs, step.outputs
        made_by = maker.get(given.number)
        alone = len(readers[given.number]) == 1 and given.number not in wanted
        message = _Message(step.start, alone and made_by is not None and not made_by.aliases)
        needed = readers.get(made.number, [count])[0]
        if needed == index + 1:
            found.append(replace(step, run=message.at_once))
            continue
        found.append(replace(step, outputs=(), several=True, run=message.begin))
        ends.setdefault(needed, []).append(replace(step, inputs=(), run=message.end))
    return found + ends.pop(count, [])


class _Message:
    """One boxing: begun and ended once in each run."""

    def __init__(self, start: Callable[..., Callable[[], Shards]], consumes: bool) -> None:
        self._start = start
        self._consumes = consumes
        self._end: Callable[[], Shards] | None = None

    def at_once(self, shards: Shards) -> Shards:
        return self._start(shards, consumes=self._consumes)()

    def begin(self, shards: Shards) -> tuple[()]:
        self._end = self._start(shards, consumes=self._consumes)
        return ()

    def end(self) -> Shards:
        end, self._end = self._end, None
        assert end is not None
        return end()
