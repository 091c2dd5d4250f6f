"""Executes a stage plan, for all ranks in one process or for the rank of this process.

With all ranks in one process, the instructions of the groups are interleaved: each group runs until
it needs a message that has not been sent. Values and sums are those of the same micro-batches run
one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from ...distributed.point_to_point import Posted
from ...distributed.world import world
from ...engine import boxing
from ...engine.commit import Write
from ...engine.tensor import Shards
from ..call_list import CallList, Filled
from ..ir import Value
from ..program_executor import Executor
from ..schedules.action_order import in_turn
from ..schedules.actions import Action
from ..writing_calls import split, writes_of
from .lower import Lowered, lower
from .partition import Part
from .stage_plan import Instruction, Message, StagePlan

_NAME = "boxing"


class Pipeline(Executor):
    """A plan bound to the places of its values; `run` is one call of the graph."""

    no_cuda_graph = "the graph has stages, whose order of work is the host's"

    def __init__(self, plan: StagePlan) -> None:
        staged, program, end = plan.staged, plan.staged.program, plan.staged.end
        count = plan.schedule.micro_batches
        super().__init__(program, end.program, count)
        self.plan = plan
        calls, all_of = self.places.calls, self.places.all_of
        self.once, self.feeds = calls(staged.once), calls(staged.feeds)
        self.parts = lower(staged, self.places)
        self.shared_by_stages = list(map(all_of, plan.shared))
        self.left = [plan.left(group) for group in range(len(staged.ranks))]
        self.slices = calls(staged.slices.steps)
        self.whole_inputs = all_of(staged.slices.inputs)
        pieces, width = all_of(staged.slices.outputs), len(self.inputs)
        self.pieces = [pieces[i * width : (i + 1) * width] for i in range(count)]
        self.end, self.writing = split(calls(end.program.steps, end.program.wanted()))
        self.crossings = [
            boxing.disjoint_boxing(t.value.meta, t.result.meta) for t in staged.transfers
        ]
        self.sources = all_of(t.value for t in staged.transfers)
        self.received = all_of(t.result for t in staged.transfers)
        self.arriving: dict[Part, list[int]] = {part: [] for part in staged.segments}
        for index, transfer in enumerate(staged.transfers):
            self.arriving[transfer.target].append(index)
        numbers = [value.number for value in staged.sums]
        self.sums = list(zip(numbers, all_of(end.sums), strict=True))
        loose = staged.sums_by_part().get(None, [])
        self.loose_sums = list(zip(all_of(loose), loose, strict=True))
        made = all_of(staged.results())
        self.results = [list(zip(made, all_of(values), strict=True)) for values in end.results]
        changed = staged.assigns_after().get(None, ())
        self.assigns_before = [tuple(all_of(pair)) for pair in changed]
        variables = all_of(variable.value for variable, _ in program.assigns)
        self.assigned = list(zip(variables, all_of(end.assigned), strict=True))

    def call_lists(self) -> list[CallList]:
        lists = [self.once, self.slices, self.feeds, self.end, self.writing]
        for part in self.parts.values():
            lists += [part.calls] if part.first is part.calls else [part.first, part.calls]
        return lists

    def compute(self, places: Filled, inputs: Sequence[Shards]) -> deque[Write]:
        call = _Call(self, places, inputs)
        call.go()
        call.finish()
        return writes_of(self.writing, places)


class _Call:
    """One call: the values of every micro-batch, the messages on their way, the sums."""

    def __init__(self, pipeline: Pipeline, base: Filled, inputs: Sequence[Shards]) -> None:
        self.pipeline = pipeline
        self.rank = world().rank
        self.base = base
        pipeline.once.run(base)
        self.state = {place: base[place] for place, _ in pipeline.assigned}
        cut = base.copy()
        for place, shards in zip(pipeline.whole_inputs, inputs, strict=True):
            cut[place] = shards
        pipeline.slices.run(cut)
        self.values: list[Filled] = []
        for piece in pipeline.pieces:
            values = base.copy()
            for place, part in zip(pipeline.inputs, piece, strict=True):
                values[place] = cut[part]
            pipeline.feeds.run(values)
            for variable, _ in pipeline.assigns_before:
                values[variable] = self.state[variable]
            for variable, place in pipeline.assigns_before:
                self.state[variable] = values[place]
            self.values.append(values)
        self.left = [counts.copy() for counts in pipeline.left]
        self.totals: dict[int, tuple[Shards, bool]] = {}  # by number; whether in memory of its own
        self.mail: dict[tuple[int, int], Any] = {}
        self.sent: list[Posted] = []

    def go(self) -> None:
        """Run all instructions."""
        plan = self.pipeline.plan
        here = [self.rank is None or self.rank in ranks for ranks in plan.staged.ranks]
        mine = [each if its else () for each, its in zip(plan.instructions, here, strict=True)]
        done = in_turn(mine, self._follow)
        assert done == [len(instructions) for instructions in mine]
        for posted in self.sent:
            posted.wait()

    def _follow(self, group: int, instruction: Instruction) -> bool:
        """Run one instruction; False if another group has to send first."""
        micro = instruction.micro_batch
        if isinstance(instruction, Message) and instruction.kind == "receive":
            index = instruction.transfer
            if self.rank is not None and self._takes(index):
                crossing = self.pipeline.crossings[index]
                self.mail[index, micro] = crossing.expect(self.rank, _NAME)
            return True
        if isinstance(instruction, Message):
            self._send(instruction.transfer, micro)
        elif not self._act(instruction):
            return False
        self.left[group][micro] -= 1
        if not self.left[group][micro]:
            for place in self.pipeline.shared_by_stages[group]:
                self.values[micro][place] = None
        return True

    def _act(self, action: Action) -> bool:
        pipeline, micro = self.pipeline, action.micro_batch
        part: Part = (action.kind, action.stage)
        arriving = pipeline.arriving[part]
        if self.rank is None and any((index, micro) not in self.mail for index in arriving):
            return False
        values = self.values[micro]
        for index in arriving:
            values[pipeline.received[index]] = self._receive(index, micro)
        lowered = pipeline.parts[part]
        for place in lowered.refreshed:
            values[place] = self.state[place]
        if lowered.random:
            pipeline.program.draws.move_to(micro)
        self._compute(lowered, values)
        for variable, place in lowered.assigns:
            self.state[variable] = values[place]
        self._add_up(lowered.sums, values)
        for place in lowered.dead:
            values[place] = None
        return True

    def _compute(self, lowered: Lowered, values: Filled) -> None:
        """Run the steps of an action, of which some add to totals."""
        adding = [self.totals.pop(number, None) for _, _, number in lowered.carried]
        calls = lowered.calls
        for (before, _, _), total in zip(lowered.carried, adding, strict=True):
            if total is None:
                calls = lowered.first
            else:
                values[before] = total[0]
        calls.run(values)
        for before, after, number in lowered.carried:
            self.totals[number] = values[after], True
            values[before] = None

    def _add_up(self, sums: Sequence[tuple[int, Value]], values: Filled) -> None:
        for place, value in sums:
            total = self.totals.get(value.number)
            more = values[place]
            self.totals[value.number] = (more, False) if total is None else added(*total, more)

    # Messages.

    def _send(self, index: int, micro: int) -> None:
        values, place = self.values[micro], self.pipeline.sources[index]
        crossing = self.pipeline.crossings[index]
        if self.rank is None:
            self.mail[index, micro] = crossing.carry(values[place], _NAME)
        elif values[place]:
            self.sent = [posted for posted in self.sent if not posted.done()]
            self.sent.append(crossing.send(self.rank, values[place], _NAME))
        if index in self.pipeline.parts[self.pipeline.plan.staged.transfers[index].source].drops:
            values[place] = None

    def _receive(self, index: int, micro: int) -> Shards:
        if self.rank is not None and not self._takes(index):
            return ()
        crossing, came = self.pipeline.crossings[index], self.mail.pop((index, micro))
        if self.rank is not None:
            came = crossing.receive(self.rank, came, _NAME)
        return crossing.arrive(came, _NAME)

    def _takes(self, index: int) -> bool:
        target = self.pipeline.crossings[index].plan.dst.placement
        assert target is not None
        return self.rank in target.position

    # The end.

    def finish(self) -> None:
        """Run the steps after the micro-batches."""
        self._hand_over()  # whose frame is gone then, with what it holds
        self.pipeline.end.run(self.base)

    def _hand_over(self) -> None:
        """Move the sums, outputs and new values to the places where the end expects them."""
        pipeline, base = self.pipeline, self.base
        for values in self.values:
            self._add_up(pipeline.loose_sums, values)
        for number, place in pipeline.sums:
            total = self.totals.pop(number, None)
            base[place] = () if total is None else total[0]  # none: of other ranks' stage
        for values, results in zip(self.values, pipeline.results, strict=True):
            for made, place in results:
                base[place] = values[made] or ()
        for variable, place in pipeline.assigned:
            base[place] = self.state[variable] or ()
        self.values.clear()
        self.state.clear()


def added(total: Shards, own: bool, more: Shards) -> tuple[Shards, bool]:
    """A sum with one more micro-batch, in the memory of the sum if it has its `own`.

    In a virtual world replicas are one tensor, which must take their common value once.
    """
    pairs = {(id(mine), id(new)): (mine, new) for mine, new in zip(total, more, strict=True)}
    if own and len(pairs) == len(set(map(id, total))):
        for mine, new in pairs.values():
            mine.add_(new)
        return total, True
    sums = {key: mine + new for key, (mine, new) in pairs.items()}
    keys = zip(map(id, total), map(id, more), strict=True)
    return tuple([sums[key] for key in keys]), True
