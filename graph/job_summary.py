"""Job summary: what each rank of a job holds and sends in a call, ranks that do the same together.

The ranks of a mesh have shards of the same shapes where its axes divide the dims, so few ranks have
to be planned, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from ..distributed.comm_log import table
from ..engine import boxing
from ..engine.boxing import BoxingPlan
from ..engine.boxing.boxing_steps import BoxingStep
from ..engine.meta import Meta
from ..engine.placement import Placement
from .garbage import uncollected
from .ir import Program, ProgramStep
from .memory.memory_plan import plan_memory
from .memory.storages import Known
from .memory_traffic import local_bytes, readable
from .stages.stage_plan import StagePlan

_SHOWN_RUNS = 4  # of neighboring ranks in one row
_LOOKED_AT = 64  # ranks of a group, where not all send the same


class RankGroup(NamedTuple):
    """Ranks that hold and do the same in a call, except for the values.

    `parameters` counts the elements of parameters and buffers on each of them. The bytes that each
    holds are those of `graph.memory(rank)`, of which `live` is the lower bound of the arena. `sent`
    and `received` are the most bytes of one of them (of the first 64) in a call.
    """

    stages: tuple[int, ...]  # none in a graph without stages
    ranks: tuple[int, ...]
    parameters: int
    persistent: int
    inputs: int
    live: int
    sent: int
    received: int

    @property
    def peak(self) -> int:
        """The peak bytes of each rank."""
        return self.persistent + self.inputs + self.live


class JobSummary(NamedTuple):
    """All ranks of a compiled graph in groups; it prints as a table with a row for each."""

    groups: tuple[RankGroup, ...]

    def group(self, rank: int) -> RankGroup | None:
        """The group that a rank is in; None for a rank that has no part in the job."""
        return next((group for group in self.groups if rank in group.ranks), None)

    def __str__(self) -> str:
        staged = any(group.stages for group in self.groups)
        rows: list[tuple[str, ...]]
        rows = [("ranks", "count", "parameters", "persistent", "peak", "sent", "received")]
        rows += [_row(group) for group in self.groups]
        if staged:
            stages = ["stage", *(", ".join(map(str, group.stages)) for group in self.groups)]
            rows = [(stage, *row) for stage, row in zip(stages, rows, strict=True)]
        return table(rows)


def _row(group: RankGroup) -> tuple[str, ...]:
    sizes = (group.persistent, group.peak, group.sent, group.received)
    return (
        runs(group.ranks), str(len(group.ranks)), f"{group.parameters:,}", *map(readable, sizes)
    )  # fmt: skip


def runs(ranks: tuple[int, ...]) -> str:
    """Ranks in increasing order as text: neighbors by the first and the last.

    >>> runs((0, 1, 2, 5, 8, 9))
    '0-2, 5, 8-9'
    """
    ends = [i for i, (a, b) in enumerate(pairwise(ranks), 1) if b != a + 1]
    found = [ranks[a:b] for a, b in pairwise([0, *ends, len(ranks)])]
    shown = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found[:_SHOWN_RUNS]]
    return ", ".join(shown + ["..."] * (len(found) > _SHOWN_RUNS))


@uncollected()
def summarize(program: Program, stages: StagePlan | None) -> JobSummary:
    """The groups of a program's ranks."""
    boxings = _Boxings(program, stages)
    groups = []
    known: Known = {}
    for ranks in alike(metas_of(program, stages), boxings.fills()):
        first = ranks[0]
        group = None if stages is None else stages.group(first)
        sent, received = boxings.traffic(ranks, group)
        variables = [variable.value.meta for variable in program.variables]
        memory = plan_memory(program, first, stages, known)
        groups.append(
            RankGroup(
                stages=() if stages is None or group is None else tuple(stages.stages(group)),
                ranks=ranks,
                parameters=sum(local_bytes(m, first) // m.dtype.itemsize for m in variables),
                persistent=memory.persistent,
                inputs=memory.inputs,
                live=memory.lower_bound,
                sent=sent,
                received=received,
            )
        )
    return JobSummary(tuple(groups))


def alike(
    metas: Iterable[Meta], fills: Iterable[tuple[Placement, int]] = ()
) -> list[tuple[int, ...]]:
    """The ranks of these layouts, grouped by the shapes of their shards.

    Ranks are apart, too, where only those on coordinate 0 of an axis keep what they have, as in the
    boxings from broadcast to partial that `fills` names.

    >>> p = onefold.placement("cpu", range(6))
    >>> alike([onefold.empty(9, 2, placement=p, sbp=onefold.sbp.split(0)).meta])
    [(0, 1, 2), (3, 4, 5)]
    """
    uneven: dict[Placement, list[Meta]] = {}
    for meta in dict.fromkeys(metas):
        if meta.placement is not None:
            its = uneven.setdefault(meta.placement, [])
            its += [] if is_even(meta) else [meta]
    axes: dict[Placement, set[int]] = {}
    for placement, axis in fills:
        axes.setdefault(placement, set()).add(axis)
    keys: dict[int, list[object]] = {}
    for number, (placement, its) in enumerate(uneven.items()):
        filled = sorted(axes.get(placement, ()))
        for position, rank in enumerate(placement.flat_ranks):
            shapes = tuple([meta.local_shape(position) for meta in its])
            at = placement.coordinate(position) if filled else ()
            keeps = tuple([at[axis] == 0 for axis in filled])
            keys.setdefault(rank, []).append((number, shapes, keeps))
    groups: dict[object, list[int]] = {}
    for rank in sorted(keys):
        groups.setdefault(tuple(keys[rank]), []).append(rank)
    return list(map(tuple, groups.values()))


def is_even(meta: Meta) -> bool:
    """Whether all shards of a global tensor have one shape."""
    sizes = list(meta.shape)
    for sbp, parts in zip(meta.nd_sbp, meta.global_placement.shape, strict=True):
        if sbp.is_split:
            if sizes[sbp.dim] % parts:
                return False
            sizes[sbp.dim] //= parts
    return True


def metas_of(program: Program, stages: StagePlan | None) -> Iterator[Meta]:
    """The layouts of all values."""
    programs = [program]
    if stages is not None:
        programs += [stages.staged.slices, stages.staged.end.program]
    for each in programs:
        yield from (value.meta for value in each.inputs)
        yield from (variable.value.meta for variable in each.variables)
        yield from (value.meta for step in each.steps for value in step.outputs)


class _Boxings:
    """The boxings of a call, and how often each of them runs."""

    def __init__(self, program: Program, stages: StagePlan | None) -> None:
        self._common: list[tuple[BoxingPlan, int]] = []  # of all ranks
        self._own: dict[int, list[tuple[BoxingPlan, int]]] = {}  # of the ranks of a group
        self._known: dict[int, bool] = {}  # by the identity of a step, whether it is balanced
        if stages is None:
            self._common = _plans(program.steps, 1)
            return
        staged, count = stages.staged, stages.schedule.micro_batches
        self._common = _plans([*staged.once, *staged.slices.steps, *staged.end.program.steps], 1)
        self._common += _plans(staged.feeds, count)
        for (_, stage), steps in staged.segments.items():
            self._own.setdefault(staged.group_of[stage], []).extend(_plans(steps, count))
        for transfer in staged.transfers:
            ends = {staged.group_of[stage] for _, stage in (transfer.source, transfer.target)}
            for group in ends:
                self._own.setdefault(group, []).extend(_plans([transfer.step], count))

    def fills(self) -> Iterator[tuple[Placement, int]]:
        """The axes of placements along which a boxing goes from broadcast to partial."""
        for plan, _ in [*self._common, *(each for its in self._own.values() for each in its)]:
            for step in plan.steps:
                if step.placement is step.target:
                    pairs = zip(step.before.nd_sbp, step.after.nd_sbp, strict=True)
                    for axis, (old, new) in enumerate(pairs):
                        if old.is_broadcast and new.is_partial:
                            yield step.placement, axis

    def traffic(self, ranks: tuple[int, ...], group: int | None) -> tuple[int, int]:
        """The most bytes that one of these equal ranks sends and receives in a call."""
        own = () if group is None else self._own.get(group, ())
        sent = received = 0
        for plan, count in (*self._common, *own):
            for step in plan.steps:
                ends = step.placement.members, step.target.members
                if step.local or not any(not each.isdisjoint(ranks) for each in ends):
                    continue
                some = ranks[:1] if self._balanced(step) else ranks[:_LOOKED_AT]
                inside = (rank for rank in some if any(rank in each for each in ends))
                counts = [step.traffic(rank) for rank in inside]
                if counts:
                    size = step.before.dtype.itemsize * count
                    received += size * max(count for count, _ in counts)
                    sent += size * max(count for _, count in counts)
        return sent, received

    def _balanced(self, step: BoxingStep) -> bool:
        """Whether no rank of the group sends more in a collective than its first rank."""
        found = self._known.get(id(step))
        if found is None:
            layouts = (step.before, step.after)
            dims = [[sbp.dim for sbp in meta.nd_sbp if sbp.is_split] for meta in layouts]
            once = all(len(set(each)) == len(each) for each in dims)
            found = step.kind != "transfer" and once and all(map(is_even, layouts))
            self._known[id(step)] = found
        return found


def _plans(steps: Iterable[ProgramStep], count: int) -> list[tuple[BoxingPlan, int]]:
    return [
        (boxing.plan(step.source.meta, step.outputs[0].meta), count)
        for step in steps
        if step.name == "boxing" and step.outputs
    ]
