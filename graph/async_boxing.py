"""Asynchronous boxing: a boxing starts in one step, and a later step waits for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from ..distributed.world import world
from ..engine.meta import Meta
from ..engine.tensor import Shards
from .ir import Program, ProgramStep

_STEPS = 16  # during which a boxing that frees memory may be on its way


def steps_with_async_boxing(program: Program) -> list[ProgramStep]:
    """The program's steps in the form in which processes of this world run them."""
    return split_boxings(program) if world().launched else program.steps


def split_boxings(program: Program) -> list[ProgramStep]:
    """The program's steps, with each communicating boxing split in two if steps can run between.

    The first of the two makes no value. Both read the boxing's input, which is there until the
    end. All ranks have the same steps, so they begin and end what they communicate in one order.
    A boxing whose result is smaller than its input, such as one that scatters a gradient, ends soon
    even if nothing reads the result before micro-batches have followed.
    A boxing may put its result in place of its input when nothing else reads that and it was
    made in memory of its own (what reads nothing, a source, may give memory of the program).
    """
    readers: dict[int, list[int]] = {}  # by the number of a value: the steps that read it
    maker = program.makers()
    for index, step in enumerate(program.steps):
        for value in step.reads():
            readers.setdefault(value.number, []).append(index)
    wanted = {value.number for value in program.wanted()}
    count = len(program.steps)
    ends: dict[int, list[ProgramStep]] = {}
    found: list[ProgramStep] = []
    for index, step in enumerate(program.steps):
        if step.writes:  # perhaps into what is still being sent
            found += [end for place in sorted(ends) for end in ends.pop(place)]
        found += ends.pop(index, ())
        if step.start is None:
            found.append(step)
            continue
        given, (made,) = step.source, step.outputs
        made_by = maker.get(given.number)
        own = made_by is not None and bool(made_by.inputs) and not made_by.aliases
        consumes = own and len(readers[given.number]) == 1 and given.number not in wanted
        message = _AsyncBoxing(step.start, consumes)
        step = replace(step, place=given if consumes else None)
        needed = readers.get(made.number, [count])[0]
        if needed == index + 1:
            found.append(replace(step, run=message.at_once))
            continue
        found.append(replace(step, outputs=(), several=True, place=None, run=message.begin))
        if _size(made.meta) < _size(given.meta):
            needed = min(needed, index + _STEPS)
        ends.setdefault(needed, []).append(replace(step, run=message.end))
    return found + ends.pop(count, [])


def _size(meta: Meta) -> int:
    """The elements of the largest shard."""
    return prod(meta.local_shape(0))


class _AsyncBoxing:
    """One boxing, which begins and ends once in each run."""

    def __init__(self, start: Callable[..., Callable[[], Shards]], consumes: bool) -> None:
        self._start = start
        self._consumes = consumes
        self._end: Callable[[], Shards] | None = None

    def at_once(self, shards: Shards) -> Shards:
        return self._start(shards, consumes=self._consumes)()

    def begin(self, shards: Shards) -> tuple[()]:
        self._end = self._start(shards, consumes=self._consumes)
        return ()

    def end(self, _: Shards) -> Shards:
        end, self._end = self._end, None
        assert end is not None
        return end()
