"""Work of a rank: the tasks that it does in a call, with what they compute and receive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch

from ...engine import boxing
from ...engine.boxing.boxing_steps import BoxingStep
from ...engine.placement import Placement
from ..hardware import Hardware
from ..hardware.collective_cost import all_reduce, span
from ..ir import ProgramStep
from ..stages.stage_plan import OF_ALL
from .comm_costs import CommCosts, Communication
from .event_simulation import About, Stream, Task
from .overlapped_copies import BEGINS, ENDS, OverlappedCopies
from .step_costs import Cost, StepCosts

_NUMBER = 8  # bytes


@dataclass(slots=True)
class Amount:
    """An amount of work: sequential seconds, and what they are spent on."""

    seconds: float = 0.0
    flop: Counter[torch.dtype] = field(default_factory=Counter)  # without what is recomputed
    flop_again: float = 0.0
    moved: Communication = field(default_factory=Communication)  # by boxings
    copied: float = 0.0  # seconds of copies to the host and back that overlap with steps
    stalled: float = 0.0  # of `seconds`, those in which steps wait for copies

    def add(self, other: Amount) -> None:
        """Add another amount."""
        self.seconds += other.seconds
        self.flop.update(other.flop)
        self.flop_again += other.flop_again
        self.moved += other.moved
        self.copied += other.copied
        self.stalled += other.stalled

    def compute(self, cost: Cost, recomputed: bool) -> None:
        """Add a step; `recomputed` says whether a checkpoint repeats it."""
        self.seconds += cost.seconds
        if recomputed:
            self.flop_again += cost.flop
        elif cost.flop:
            self.flop[cost.dtype] += int(cost.flop)

    def communicate(self, communication: Communication) -> None:
        """Add a boxing."""
        self.seconds += communication.seconds
        self.moved += communication

    def stall(self, seconds: float) -> None:
        """Add a time in which a step waits for a copy."""
        self.seconds += seconds
        self.stalled += seconds


@dataclass(slots=True)
class RankWork:
    """The work of one rank, and of all that are equal to it, in a call."""

    ranks: tuple[int, ...]
    costs: StepCosts
    done: Amount = field(default_factory=Amount)
    last: dict[Stream, int] = field(default_factory=dict)  # the newest task of each stream

    @property
    def rank(self) -> int:
        """The rank that represents all of them."""
        return self.ranks[0]


class Tasks:
    """The tasks of all different ranks, while they are collected."""

    def __init__(self, hardware: Hardware, groups: Iterable[tuple[int, ...]]) -> None:
        self.hardware = hardware
        self.comm = CommCosts(hardware)
        self.works = [RankWork(ranks, StepCosts(hardware, ranks[0])) for ranks in groups]
        self.index_of = {rank: i for i, work in enumerate(self.works) for rank in work.ranks}
        self.tasks: list[Task] = []
        self._met: dict[tuple[object, ...], dict[int, int]] = {}
        self._members: dict[Placement, frozenset[int]] = {}

    def taking_part(self, step: ProgramStep) -> Sequence[int]:
        """The works whose ranks have shards of what a step reads, makes or writes."""
        if not step.outputs and not step.writes:
            return ()
        found: set[int] = set()
        for placement in {value.meta.placement for value in (*step.outputs, *step.reads())}:
            if placement is None:
                return range(len(self.works))
            if placement not in self._members:
                ranks = (self.index_of[rank] for rank in placement.flat_ranks)
                self._members[placement] = frozenset(ranks)
            found |= self._members[placement]
        return sorted(found)

    def add(
        self,
        index: int,
        stream: Stream,
        name: str,
        seconds: float,
        needs: tuple[int, ...] = (),
        meeting: Hashable = None,
        about: About | None = None,
    ) -> int:
        """Append a task of the work number `index`; its number."""
        number = len(self.tasks)
        shown = about or About()
        self.tasks.append(Task(name, index, stream, seconds, needs, meeting, shown))
        self.works[index].last[stream] = number
        return number

    def need(self, number: int, needs: Iterable[int]) -> None:
        """Add dependencies to a task."""
        task = self.tasks[number]
        self.tasks[number] = replace(task, needs=(*task.needs, *needs))

    def boxing(self, step: ProgramStep, index: int) -> Communication:
        """The communication of a boxing on a rank."""
        work = self.works[index]
        return self.comm.of(_plan(step), work.rank, work.costs)

    def meeting(self, step: ProgramStep, index: int, key: Hashable) -> Hashable:
        """The point at which different ranks of a step meet; None if only equal ranks do, or none.

        Works meet in a boxing whose ranks are in one group, or in groups with ranks of a third.
        """
        if len(self.works) > 1 and step.name in OF_ALL:
            return key
        if len(self.works) == 1 or step.start is None:
            return None
        collectives = tuple([each for each in _plan(step) if not each.local])
        form = tuple([(each.placement, each.target, each.axes) for each in collectives])
        if form not in self._met:
            self._met[form] = self._meetings(collectives)
        root = self._met[form].get(index)
        return None if root is None else (key, root)

    def _meetings(self, collectives: Sequence[BoxingStep]) -> dict[int, int]:
        """For each work that meets others, the first of those."""
        root: dict[int, int] = {}

        def find(index: int) -> int:
            while root.setdefault(index, index) != index:
                index = root[index]
            return index

        for each in collectives:
            for index, work in enumerate(self.works):
                if work.rank in each.ranks:
                    for other in {self.index_of[rank] for rank in each.group(work.rank)}:
                        low, high = sorted((find(index), find(other)))
                        root[high] = low
        members = Counter(map(find, list(root)))
        return {index: find(index) for index in root if members[find(index)] > 1}

    def amount(self, steps: Iterable[ProgramStep], index: int) -> Amount:
        """Steps one after the other, boxings too, where a rank takes part in them.

        Copies to the host and back overlap with them, unless a step waits.
        """
        found, costs, since = Amount(), self.works[index].costs, 0.0
        copies = OverlappedCopies(self.hardware.host_bandwidth, costs.rank)
        for step in steps:
            if index not in self.taking_part(step):
                continue
            if step.origin in BEGINS:
                copies.begin(step, found.seconds)
                continue
            if step.origin in ENDS:
                found.stall(copies.wait(step, found.seconds))
                continue
            if step.start is not None:
                boxing = self.boxing(step, index)
                found.communicate(boxing)
                if boxing.traffic:
                    found.seconds += self.hardware.skew * since
                    since = 0.0
                continue
            cost = costs.of(step)
            found.compute(cost, bool(step.recomputation))
            since += cost.seconds
            if step.name in OF_ALL:
                found.communicate(self.number_of_all())
        found.copied = copies.seconds
        return found

    def number_of_all(self) -> Communication:
        """The cost of an all-reduce of one number over all ranks."""
        ranks = [rank for work in self.works for rank in work.ranks]
        return Communication(all_reduce(span(self.hardware, ranks), _NUMBER))


def _plan(step: ProgramStep) -> Sequence[BoxingStep]:
    return boxing.plan(step.source.meta, step.outputs[0].meta).steps
