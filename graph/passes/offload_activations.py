"""Offloading: what backward needs of a module waits in host memory, not on the device."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

from ..host_copies import host_copies
from ..ir import Program, ProgramStep, Value
from ..stages.assign_stages import crosses, is_backward
from .copy_schedule import Copy, Turns, copy_seconds, schedule, seconds_of

_SOON = 9  # steps in which a value is needed again: it stays
_MARGIN = 2.0  # times as long as modeled, copies of a stage may take before a step waits for them


def offload_activations(program: Program) -> Program:
    """The program in which modules with `activation_offloading` keep activations on the host.

    An activation is made by a step of the module's forward from the program's inputs, and read by
    backward. Its copy to the host begins after its last use in forward, and its memory is free when
    that should be done, at the latest where backward begins. It is copied back in time for its
    first use in backward, by the modeled times of the steps before (`copy_schedule.py`). Views of
    it are recomputed there. What is wanted at the end, or needed again too soon, stays. No bit of a
    result changes: strides are kept, too.

    With stages this is done for the forward and backward of each. What is on its way when one ends,
    or is needed when the other begins, is copied while other work runs (`stage_copies.py`). What
    goes to other stages stays.
    """
    if not any(step.offloaded for step in program.steps):
        return program
    numbers = program.free_numbers()
    behind: dict[int, list[ProgramStep]] = defaultdict(list)
    # Copies go one after the other, and so do the steps at one place that begin them or wait.
    releases: dict[int, list[tuple[int, ProgramStep]]] = defaultdict(list)
    fetches: dict[int, list[tuple[int, ProgramStep]]] = defaultdict(list)
    before: dict[int, list[ProgramStep]] = defaultdict(list)
    renamed: dict[int, dict[int, Value]] = defaultdict(dict)  # from the step with this index on
    uses = _Uses(program)
    for run in _runs(program):
        found = _Activations(program, run, uses)
        for each, turns in found.offloaded():
            value, last, needed = each.value, run.at[each.last], run.at[each.needed]
            kept, away, fetched, there = (Value(next(numbers), value.meta) for _ in range(4))
            made = kept, away, fetched, there
            reader = program.steps[needed]
            offload, release, fetch, wait = host_copies(value, made, each.maker, reader)
            behind[last].append(offload)
            releases[run.at[turns.released]].append((last, release))
            fetches[run.at[turns.fetched]].append((needed, fetch))
            before[needed].append(wait)
            same = {value.number: there}
            for step in found.views_read(each):
                new = tuple([Value(next(numbers), view.meta) for view in step.outputs])
                view_step = replace(step.substitute(same), outputs=new, backward=True)
                before[needed].append(view_step)
                same |= {old.number: view for old, view in zip(step.outputs, new, strict=True)}
            renamed[needed] |= same
    steps: list[ProgramStep] = []
    now: dict[int, Value] = {}
    for index, step in enumerate(program.steps):
        now |= renamed.get(index, {})
        for placed in (releases[index], fetches[index]):
            steps += [each for _, each in sorted(placed, key=itemgetter(0))]
        steps += [*before[index], step.substitute(now), *behind[index]]
    return replace(program, steps=steps)


@dataclass(frozen=True, slots=True)
class _Run:
    """Steps that run one after the other, and between which copies can be."""

    at: Sequence[int]  # their indices in the program
    backward: Sequence[bool]  # which of them are of backward
    staged: bool = False  # whether other work may be between forward and backward


def _runs(program: Program) -> Iterator[_Run]:
    """The whole program, or with stages the forward and the backward of each."""
    steps = program.steps
    if all(step.stage is None for step in steps):
        yield _Run(range(len(steps)), [step.backward for step in steps])
        return
    late = is_backward(program)
    stages: defaultdict[int, list[int]] = defaultdict(list)
    for at, step in enumerate(steps):
        if step.stage is not None and not crosses(step):
            stages[step.stage].append(at)
    for own in stages.values():
        behind = [at for at in own if late[at]]
        ahead = [at for at in own if behind and at < behind[0]]
        yield _Run([*ahead, *behind], [late[at] for at in (*ahead, *behind)], staged=True)


@dataclass(slots=True)
class _Activation:
    """A value with memory of its own, and the steps before backward that make views of it."""

    value: Value
    maker: ProgramStep
    last: int  # the place in its run of the last step before backward that needs it or a view
    needed: int = -1  # the place of the first step of backward that does; -1: none yet
    views: list[ProgramStep] = field(default_factory=list)
    stays: bool = False  # whether it must not leave the device


class _Uses:
    """What a program does with its values, by their numbers."""

    def __init__(self, program: Program) -> None:
        self.follows = {value.number for value in program.inputs}  # what the inputs decide
        self.readers: defaultdict[int, list[int]] = defaultdict(list)  # the indices of steps
        ends = [*program.wanted(), *(value for pair in program.carried for value in pair)]
        for at, step in enumerate(program.steps):
            reads = [value.number for value in step.reads()]
            for number in reads:
                self.readers[number].append(at)
            if not self.follows.isdisjoint(reads):
                self.follows.update(value.number for value in step.outputs)
            ends += step.writes if step.place is None else (step.place, *step.writes)
        self.ends = {value.number for value in ends}  # which must stay where they are


class _Activations:
    """What steps of modules with `activation_offloading` make for backward, in one run."""

    def __init__(self, program: Program, run: _Run, uses: _Uses) -> None:
        self._run = run
        self._follows = uses.follows
        self._all: list[_Activation] = []
        self._of: dict[int, _Activation] = {}  # by number: it, or the one it is a view of
        self._read: dict[int, int] = {}  # by number, the place of the last step that reads it
        self._backward = [place for place, late in enumerate(run.backward) if late]
        self._steps = [program.steps[at] for at in run.at]
        for place, step in enumerate(self._steps):
            self._add(place, step)
        inside = set(run.at)
        for number, base in self._of.items():
            if number in uses.ends or not inside.issuperset(uses.readers[number]):
                base.stays = True

    def offloaded(self) -> Iterator[tuple[_Activation, Turns]]:
        """Those to keep on the host, in the order in which they are made."""
        soon = 0 if self._run.staged else _SOON
        free = [each for each in self._all if not each.stays and each.needed > each.last + soon]
        copies = []
        for each in free:
            turn = self._backward[bisect_right(self._backward, each.last)]
            taken = copy_seconds(each.value.meta) * (_MARGIN if self._run.staged else 1.0)
            copies.append(Copy(each.last, each.needed, taken, turn, self._run.staged))
        seconds = [seconds_of(step) for step in self._steps]
        yield from zip(free, schedule(seconds, copies), strict=True)

    def views_read(self, activation: _Activation) -> list[ProgramStep]:
        """The steps that make those views that are read from where backward begins to."""
        found: list[ProgramStep] = []
        needed: set[int] = set()
        for step in reversed(activation.views):
            made = [value.number for value in step.outputs]
            if any(n in needed or self._read.get(n, -1) >= activation.needed for n in made):
                needed.update(value.number for value in step.reads())
                found.append(step)
        return found[::-1]

    def _keep(self, values: Iterable[Value]) -> None:
        """Keep values, and the bases of views, on the device."""
        for value in values:
            if value.number in self._of:
                self._of[value.number].stays = True

    def _add(self, place: int, step: ProgramStep) -> None:
        reads = {value.number: value for value in step.reads()}
        self._read.update(dict.fromkeys(reads, place))
        for number in reads:
            each = self._of.get(number)
            if each is None or each.needed >= 0:
                continue
            if self._run.backward[place]:
                each.needed = place
            else:
                each.last = place
        if not step.aliases:
            self._begin(place, step)
        elif len(reads) > 1:  # in whose memory the result lies is not known
            self._keep(reads.values())
        else:
            for base in filter(None, map(self._of.get, reads)):
                self._of.update((value.number, base) for value in step.outputs)
                if base.needed < 0:
                    base.views.append(step)

    def _begin(self, place: int, step: ProgramStep) -> None:
        """Add the activations that a step makes in new memory."""
        if self._run.backward[place] or not step.offloaded:
            return
        for value, offloaded in zip(step.outputs, step.offloaded, strict=True):
            if offloaded and value.number in self._follows:
                self._all.append(_Activation(value, step, place))
                self._of[value.number] = self._all[-1]
