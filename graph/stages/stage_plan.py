"""Stage plan: the instructions of every group of ranks, with messages in one global order.

The order is that in which the values are produced when every action takes the time of its kind
(`message_order.py`). Copies to the host and back (R and P) are placed between them
(`stage_copies.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

from ...distributed.world import shortened
from ...engine.placement import Placement
from ...errors import OnefoldValueError
from ..ir import ProgramStep, Value
from ..schedules.actions import Action, Schedule
from ..schedules.diagram import diagram
from ..schedules.message_order import Posting, postings_after
from ..schedules.named_schedules import default_for, make
from ..schedules.schedule_check import check, in_flight
from ..schedules.simulate import Timeline, Times, simulate
from .partition import Part, Staged
from .stage_copies import with_copies

Way: TypeAlias = Literal["send", "receive"]
OF_ALL = ("unscale", "clip_grad_norm_", "clip_factor")  # steps that need all ranks' gradients


@dataclass(frozen=True, slots=True)
class Message:
    """One end of a transfer of one micro-batch; `order` is its place among all of the plan."""

    kind: Way
    transfer: int
    micro_batch: int
    order: int


Instruction = Action | Message


@dataclass(frozen=True)
class StagePlan:
    """The instructions of every group of ranks for one call, which can be printed."""

    staged: Staged
    schedule: Schedule
    instructions: tuple[tuple[Instruction, ...], ...]  # of each group

    def group(self, rank: int) -> int | None:
        """The group that a rank is in."""
        return next((i for i, ranks in enumerate(self.staged.ranks) if rank in ranks), None)

    @cached_property
    def sums(self) -> dict[Part | None, list[Value]]:
        """The values that are added up over the micro-batches, by the segment that makes each."""
        return self.staged.sums_by_part()

    @cached_property
    def carried(self) -> dict[Part, list[tuple[Value, Value]]]:
        """By segment, the sums that its steps add to: as they were before, and then are."""
        return self.staged.carried_by_part()

    @cached_property
    def shared(self) -> tuple[list[Value], ...]:
        """For each group the values that several of its stages need, but no output."""
        return self.staged.shared_by_stages()

    @cached_property
    def ends(self) -> list[tuple[ProgramStep, frozenset[Placement | None]]]:
        """The steps after all micro-batches, with the placements of what each reads and makes."""
        return [(step, placements_of(step)) for step in self.staged.end.program.steps]

    def left(self, group: int) -> list[int]:
        """For each micro-batch, how many actions and sends of a group there are."""
        found = [0] * self.schedule.micro_batches
        for each in self.instructions[group]:
            if isinstance(each, Action) or each.kind == "send":
                found[each.micro_batch] += 1
        return found

    def in_flight(self, group: int) -> int:
        """The most micro-batches, counted for each of its stages, that a group holds at once."""
        return in_flight(self.schedule, group, "W")

    def order(self, group: int) -> str:
        """A group's instructions, a line each."""
        lines = [f"  {self._line(each)}" for each in self.instructions[group]]
        lines += ["  run update"] * self.staged.end.program.updates
        return "\n".join([self._title(group), *lines])

    def text(self, rank: int) -> str:
        """The work of a rank: its group's instructions, and the steps that each of them runs."""
        group = self.group(rank)
        if group is None:
            return f"rank {rank} is on no stage"
        return f"{self.order(group)}\n{self.staged.text(self.stages(group))}"

    def stages(self, group: int) -> list[int]:
        """The stages of a group of ranks."""
        return [stage for stage, its in enumerate(self.staged.group_of) if its == group]

    def _title(self, group: int) -> str:
        stages = self.stages(group)
        return (
            f"ranks {shortened(self.staged.ranks[group])}, stage{'s' * (len(stages) > 1)} "
            f"{', '.join(map(str, stages))}: {self.schedule.name}, {self.schedule.micro_batches} "
            f"micro-batches, at most {self.in_flight(group)} in flight"
        )

    def _line(self, instruction: Instruction) -> str:
        if isinstance(instruction, Action):
            return f"run {instruction}"
        transfer = self.staged.transfers[instruction.transfer]
        source, target = (f"{kind}{stage}" for kind, stage in (transfer.source, transfer.target))
        return (
            f"{instruction.kind} {transfer}, {source}.{instruction.micro_batch} to "
            f"{target}.{instruction.micro_batch} (#{instruction.order})"
        )

    def diagram(self) -> str:
        """The schedule's picture, where a backward takes as long as two forwards."""
        timeline = simulate(self.schedule, Times(), self.staged.edges())
        picture = diagram(timeline, updates=self._updates(timeline))
        return f"{self.schedule.name}, one column per unit of time\n{picture}"

    def _updates(self, timeline: Timeline) -> list[float]:
        """When each group begins its update: with all others, if norms are those of all stages."""
        program = self.staged.end.program
        if not program.updates:
            return []
        ends = [timeline.spans[actions[-1]][1] for actions in self.schedule.ranks]
        waits = any(step.name in OF_ALL for step in program.steps)
        return [max(ends)] * len(ends) if waits else ends

    def __str__(self) -> str:
        return "\n".join(self.order(group) for group in range(len(self.staged.ranks)))


def placements_of(step: ProgramStep) -> frozenset[Placement | None]:
    """Those of all that a step reads and makes."""
    return frozenset([value.meta.placement for value in (*step.outputs, *step.reads())])


def plan_stages(staged: Staged, schedule: Schedule) -> StagePlan:
    """Order the actions and messages of every group. Raises OnefoldRuntimeError for a deadlock."""
    edges = staged.edges()
    check(schedule, edges)
    timeline = simulate(schedule, Times(), edges)
    ends = sorted(
        (timeline.spans[Action(*each.source, micro)][1], index, micro)
        for index, each in enumerate(staged.transfers)
        for micro in range(schedule.micro_batches)
    )
    orders = {(index, micro): order for order, (_, index, micro) in enumerate(ends)}
    found = tuple(
        tuple(_instructions(staged, actions, group, orders))
        for group, actions in enumerate(schedule.ranks)
    )
    return StagePlan(staged, schedule, found)


def _instructions(
    staged: Staged, actions: Sequence[Action], group: int, orders: dict[tuple[int, int], int]
) -> list[Instruction]:
    at = {action: index for index, action in enumerate(actions)}
    postings: list[Posting[Message]] = []
    for (index, micro), order in orders.items():
        transfer = staged.transfers[index]
        ends: tuple[tuple[Way, Part], ...]
        ends = ("send", transfer.source), ("receive", transfer.target)
        for kind, part in ends:
            if staged.group_of[part[1]] == group:
                message = Message(kind, index, micro, order)
                postings.append(Posting(message, kind == "send", at[Action(*part, micro)]))
    found: list[Instruction] = []
    copies = with_copies(actions, staged.segments)
    for done, messages in enumerate(postings_after(postings, len(actions)), -1):
        found += [] if done < 0 else [actions[done]]
        found += messages
        found += copies.get(done + 1, ())
    return found


def schedule_for(ranks: Sequence[frozenset[int]], name: str | None, micro_batches: int) -> Schedule:
    """The schedule for stages on these ranks; without a name the first that fits their order.

    Raises OnefoldValueError when the named one does not fit the order of the stages.
    """
    groups = list(dict.fromkeys(ranks))
    group_of = tuple(map(groups.index, ranks))
    chosen = name or default_for(group_of)
    schedule = make(chosen, len(ranks), micro_batches, len(groups))
    if schedule.rank_of != group_of:
        lies = [f"{stage} on {sorted(ranks[stage])}" for stage in range(len(ranks))]
        raise OnefoldValueError(
            f"schedule {chosen} deals the stages out to groups of ranks as {schedule.rank_of}, but "
            f"here the stages are {', '.join(lies)}; change the placements of set_stage, or choose "
            "another schedule with config.set_schedule"
        )
    return schedule


def forward_only(schedule: Schedule) -> Schedule:
    """The schedule without its backward actions."""
    ranks = tuple(tuple(a for a in actions if a.kind == "F") for actions in schedule.ranks)
    return replace(schedule, ranks=ranks)
