"""Update in backward: parameters are updated as soon as their gradients are there.

The optimizers' steps are made in several turns, and each goes to where the last of its gradients is
made and nothing reads its parameters any more. A gradient is then freed before later ones are made.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..ir import UPDATE, Program, ProgramStep, Value

_TURNS = 16  # at most: a step for less than this part of the gradients is not worth its launch
_END = sys.maxsize  # after all steps


def turns(program: Program) -> dict[int, int]:
    """By the number of each gradient, its position in the order of use: first made, first used.

    The gradients of a turn are made one after another. Turns begin at equal parts of all bytes.
    """
    order = _Order(program.steps)
    values = {value.number: value for _, value in program.gradients}
    gradients = sorted(values.values(), key=order.made)
    whole = max(1, sum(value.meta.nbytes for value in gradients))
    found, before = {}, 0
    for value in gradients:
        found[value.number] = _TURNS * before // whole
        before += value.meta.nbytes
    return found


def update_in_backward(program: Program) -> Program:
    """The program with each writing step of the update as early as its dependencies allow.

    Where ranks send each other a gradient, its update waits until the next one is about to be sent,
    so that it travels meanwhile. Other steps of the update, and those that only view gradients for
    it, go to directly before what needs them.
    """
    moving = _moving(program)
    fixed = [step for step in program.steps if id(step) not in moving]
    gradients = [value for _, value in program.gradients]
    places = _Order(fixed).places([*moving.values()], gradients)
    after: dict[int, list[ProgramStep]] = defaultdict(list)
    for step, place in zip(moving.values(), places, strict=True):
        after[min(place, len(fixed) - 1)].append(step)
    found = after[-1]
    for index, step in enumerate(fixed):
        found += [step, *after[index]]
    return replace(program, steps=found)


def _moving(program: Program) -> dict[int, ProgramStep]:
    """By identity: the steps of the update, and the views that only those read."""
    others = {value.number for value in program.wanted()}  # what is needed besides
    found = []
    for step in reversed(program.steps):
        views = step.aliases and others.isdisjoint(value.number for value in step.outputs)
        if step.scope == UPDATE or views:
            found.append(step)
        else:
            others.update(value.number for value in step.reads())
    return {id(step): step for step in reversed(found)}


class _Order:
    """The indices of the steps that stay after which moved steps can run."""

    def __init__(self, steps: Iterable[ProgramStep]) -> None:
        self._ready: dict[int, int] = {}  # by the number of a value
        self._made: dict[int, int] = {}  # by the number of a value, the same of what it views
        self._roots: dict[int, frozenset[int]] = {}  # by number: the values whose memory it may be
        self._used: dict[int, int] = {}  # by root: when its memory is read last
        self._written: dict[int, int] = {}  # by root: when its memory is written last
        self._sent: set[int] = set()  # the numbers of what ranks send each other
        for index, step in enumerate(steps):
            self._note(step, index)
            self._use(step, index)

    def ready(self, value: Value) -> int:
        """The index of the step that makes a value, or writes it last; -1 if it is there before."""
        written = (self._written.get(root, -1) for root in self._roots_of([value]))
        return max(self._ready.get(value.number, -1), *written)

    def made(self, value: Value) -> int:
        """The same of what a value views."""
        return self._made.get(value.number, -1)

    def places(self, steps: Sequence[ProgramStep], gradients: Iterable[Value]) -> list[int]:
        """The indices after which these steps are done, in their order where those are equal."""
        begin = next((index for index, step in enumerate(steps) if step.writes), len(steps))
        found = [self._earliest(step, ()) for step in steps[:begin]]
        made = sorted({self.ready(value) for value in gradients})  # views of them, too
        found += [self._earliest(step, made) for step in steps[begin:]]
        read: dict[int, int] = {}  # by number: when it is read first
        written: dict[int, int] = {}  # by root: when its memory is written first
        for index, step in reversed([*enumerate(steps)]):
            if not step.writes:
                ends = [read.get(value.number, _END) for value in step.outputs]
                ends += [written.get(root, _END) for root in self._roots_of(step.reads())]
                found[index] = min(ends)
            for value in step.reads():
                read[value.number] = min(read.get(value.number, _END), found[index])
            for root in self._roots_of(step.writes):
                written[root] = min(written.get(root, _END), found[index])
        return found

    def _earliest(self, step: ProgramStep, made: Sequence[int]) -> int:
        """The first index after which what the step reads is there, and it may write."""
        place = self._given(step)
        if step.writes:
            place = max([place, *(self._used.get(x, -1) for x in self._roots_of(step.writes))])
            if any(value.number in self._sent for value in step.reads()):
                place = next((index - 1 for index in made if index > place), _END)
        self._note(step, place)
        self._use(step, place)
        return place

    def _given(self, step: ProgramStep) -> int:
        return max(map(self.ready, step.reads()), default=-1)

    def _roots_of(self, values: Iterable[Value]) -> set[int]:
        alone = ((value.number, frozenset([value.number])) for value in values)
        return {root for number, own in alone for root in self._roots.get(number, own)}

    def _note(self, step: ProgramStep, place: int) -> None:
        """Record that the results and writes of a step are available after this index."""
        shared = self._roots_of(step.reads()) if step.aliases else set()
        sent = step.start is not None
        sent |= step.aliases and any(value.number in self._sent for value in step.reads())
        for value in step.outputs:
            self._roots[value.number] = frozenset(shared | {value.number})
            if sent:
                self._sent.add(value.number)
            self._ready[value.number] = place
            self._made[value.number] = max(map(self.made, step.reads())) if step.aliases else place
        for root in self._roots_of(step.writes):
            self._written[root] = place

    def _use(self, step: ProgramStep, place: int) -> None:
        """Record that a step reads its inputs after this index."""
        for root in self._roots_of(step.reads()):
            self._used[root] = max(self._used.get(root, -1), place)
