"""Memory events of a graph with stages on one rank: the instructions of its group, per
micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, count

from ...engine.placement import Placement
from ..ir import ProgramStep, Value
from ..schedules.actions import Action
from ..stages.partition import Part
from ..stages.stage_plan import Instruction, Message, StagePlan, placements_of
from .liveness import Event
from .program_events import Block, Lane, Work, events_of, planned
from .storages import Known


def stage_events(
    plan: StagePlan, rank: int, posted: bool = True, known: Known | None = None
) -> list[Event]:
    """The events of a rank in one call.

    A received value is live from the post of its receive or, without `posted`, from its use, as
    where one process has all ranks. A sent value is live until the send is started; messages that
    are still in flight are not counted.
    """
    return _Events(plan, rank, posted).events(known)


@dataclass(frozen=True)
class StageWork:
    """The actions that the events of a stage's ranks belong to."""

    actions: tuple[tuple[Action, int, int], ...]  # with its first event, and the one after its last
    sums: dict[int, Value]  # by number of a sum over micro-batches, what is added up


def stage_work(plan: StagePlan, rank: int) -> StageWork:
    """The actions among the events of `stage_events(plan, rank)`, for all ranks of its group."""
    events = _Events(plan, rank, True)
    events.until_end()
    lengths = [1 if isinstance(each, Work) else len(each.steps) for each in events.work]
    at = [0, *accumulate(lengths)]
    spans = tuple([(action, at[first], at[end]) for action, first, end in events.spans])
    return StageWork(spans, events.added)


class _Events:
    def __init__(self, plan: StagePlan, rank: int, posted: bool) -> None:
        self.plan = plan
        self.staged = plan.staged
        self.rank = rank
        self.posted = posted
        self.count = plan.schedule.micro_batches
        self.work: list[Work | Block] = []
        self.common = {value.number for step in self.staged.once for value in step.outputs}
        self.common |= {total.number for total, _ in self.staged.program.carried}
        self.totals: dict[int, tuple[Value, Lane]] = {}  # by the number of a summed value
        self.added: dict[int, Value] = {}  # by the number of a sum
        self.spans: list[tuple[Action, int, int]] = []  # with the places of its work
        self.numbers = count(-1, -1)  # of values that only the plan has
        self.sums = plan.sums
        self.carried = plan.carried
        self.begun: set[Part] = set()  # of the segments with carried sums
        group = plan.group(rank)
        self.instructions = () if group is None else plan.instructions[group]
        self.left = [] if group is None else plan.left(group)
        self.shared = [] if group is None else plan.shared[group]

    def events(self, known: Known | None) -> list[Event]:
        staged = self.staged
        self.until_end()
        kept = self._end()
        fed = [v for step in staged.feeds for v in step.outputs]
        for lane in range(self.count):
            self._drop(fed, lane)
        self._drop([v for step in staged.once for v in step.outputs], None)
        return events_of(
            self.work,
            self.rank,
            [(value, None) for value in staged.slices.inputs],
            [*(v.value for v in staged.program.variables), *staged.end.program.states],
            kept,
            self.common,
            known,
        )

    def until_end(self) -> None:
        """Record the work of all micro-batches."""
        program, staged = self.staged.program, self.staged
        lanes = range(self.count)
        for step in (*staged.once, *staged.slices.steps):
            self._add(step, None)
        pieces = iter(staged.slices.outputs)
        for lane in lanes:
            for value in program.inputs:
                piece = next(pieces)
                if self._away([piece.meta.placement, value.meta.placement]):
                    self._add(_elsewhere("same"), lane)
                    continue
                part = planned("same", [piece], (value,), aliases=True)
                self.work.append(Work(part, lane, (None,)))
        feeds = [
            _elsewhere(step.name) if self._away(placements_of(step)) else step
            for step in staged.feeds
        ]
        for lane in lanes:
            for step in feeds:
                self._add(step, lane)
        for each in self.instructions:
            self._follow(each)
        for lane in lanes:
            self._add_up(self.sums.get(None, ()), lane)

    def _add(self, step: ProgramStep, lane: Lane) -> None:
        self.work.append(Work(step, lane))

    def _drop(self, values: Sequence[Value], lane: Lane) -> None:
        self.work.append(Work(planned("drop", values), lane))

    def _follow(self, each: Instruction) -> None:
        lane = each.micro_batch
        if isinstance(each, Message) and each.kind == "receive":
            if self.posted:
                self._add(self.staged.transfers[each.transfer].step, lane)
            return
        if isinstance(each, Message):
            self._drop([self.staged.transfers[each.transfer].value], lane)
        else:
            self._act(each)
        self.left[lane] -= 1
        if not self.left[lane]:
            self._drop(self.shared, lane)

    def _act(self, action: Action) -> None:
        part, lane = (action.kind, action.stage), action.micro_batch
        first = len(self.work)
        if not self.posted:
            for transfer in self.staged.transfers:
                if transfer.target == part:
                    self._add(transfer.step, lane)
        carried = self.carried.get(part, ())
        if carried and part not in self.begun:
            self.begun.add(part)
            self.work.append(Block(self.staged.first(part), lane))
            for total, value in carried:
                self.work.append(Work(planned("same", [value], (total,), aliases=True), lane))
                self.totals[value.number] = total, None
                self.added[value.number] = value
        else:
            self.work.append(Block(self.staged.segments[part], lane))
        self._add_up(self.sums.get(part, ()), lane)
        self.spans.append((action, first, len(self.work)))

    def _add_up(self, values: Iterable[Value], lane: Lane) -> None:
        taken = []  # by sums that are there already
        for value in values:
            before = self.totals.get(value.number)
            at = self._lane(value, lane)
            if before is None:
                self.totals[value.number] = value, at
                continue
            if before[0] is not value:
                taken.append(value)
                continue
            total = Value(next(self.numbers), value.meta)
            self.added[total.number] = value
            add = planned("add", (value, value), (total,))
            self.work.append(Work(add, lane, (before[1], at)))
            self.totals[value.number] = total, lane
        if taken:
            self._drop(taken, lane)

    def _end(self) -> list[tuple[Value, Lane]]:
        """Record the work after all micro-batches, and the values that stay."""
        end, program = self.staged.end, self.staged.program
        of: dict[int, tuple[Value, Lane]] = {}
        for value, total in zip(self.staged.sums, end.sums, strict=True):
            of[total.number] = self.totals.get(value.number, (value, None))
        for lane, values in enumerate(end.results):
            for made, value in zip(program.outputs, values, strict=True):
                of[value.number] = made, self._lane(made, lane)
        for (_, made), value in zip(program.assigns, end.assigned, strict=True):
            of[value.number] = made, self._lane(made, self.count - 1)

        def now(value: Value) -> tuple[Value, Lane]:
            return of.get(value.number, (value, None))

        for step, placements in self.plan.ends:
            if self._away(placements):
                self.work.append(Work(_elsewhere(step.name)))
                continue
            pairs = [now(v) if type(v) is Value else (v, None) for v in step.inputs]
            place = None if step.place is None else now(step.place)[0]
            step = replace(step, inputs=tuple([value for value, _ in pairs]), place=place)
            self.work.append(Work(step, None, tuple([lane for _, lane in pairs])))
        return [now(value) for value in end.program.wanted()]

    def _away(self, placements: Iterable[Placement | None]) -> bool:
        """Whether the rank is in none of these placements."""
        return not any(
            placement is None or self.rank in placement.position for placement in placements
        )

    def _lane(self, given: object, lane: Lane) -> Lane:
        """The lane of a value that a step in this lane reads."""
        return None if type(given) is Value and given.number in self.common else lane


@cache
def _elsewhere(name: str) -> ProgramStep:
    """A placeholder for a step that a rank does not run."""
    return planned(name, ())
