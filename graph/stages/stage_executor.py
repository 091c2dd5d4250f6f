"""Executes a stage plan, for all ranks in one process or for the rank of this process.

With all ranks in one process, the instructions of the groups are interleaved: each group runs until
it needs a message that has not been sent. Values and sums are those of the same micro-batches run
one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...distributed.collectives import Posted
from ...distributed.world import world
from ...engine import boxing
from ...engine.inplace import take, writable
from ...engine.tensor import Shards, Tensor
from ..ir import ProgramStep, Value
from ..program_executor import (
    Call,
    Places,
    check_variables,
    execute,
    kept_by_outputs,
    mark_written,
    shared,
)
from ..schedules.actions import Action
from .lower import Lowered, lower
from .partition import Part
from .stage_plan import Instruction, Message, StagePlan

_NAME = "boxing"


class Pipeline:
    """A plan bound to the places of its values; `run` is one call of the graph."""

    def __init__(self, plan: StagePlan) -> None:
        staged, program = plan.staged, plan.staged.program
        self.plan = plan
        self.program = program
        self.count = plan.schedule.micro_batches
        self.places = Places()
        place = self.places.of
        self.variables = [(place(v.value), v.tensor, v.value) for v in program.variables]
        self.inputs = [place(value) for value in program.inputs]
        self.once = [self.places.call(step, ()) for step in staged.once]
        self.feeds = [self.places.call(step, ()) for step in staged.feeds]
        self.parts = lower(staged, self.places)
        self.shared_by_stages = [
            [place(value) for value in staged.shared_by_stages(group)]
            for group in range(len(staged.ranks))
        ]
        self.slices = [self.places.call(step, ()) for step in staged.slices.steps]
        self.whole_inputs = [place(value) for value in staged.slices.inputs]
        pieces = [place(value) for value in staged.slices.outputs]
        width = len(self.inputs)
        self.pieces = [pieces[i * width : (i + 1) * width] for i in range(self.count)]
        end = staged.end.program
        self.end_steps = end.steps
        self.end = self.places.calls(end.steps, end.wanted())
        self.results = [[place(value) for value in values] for values in staged.end.results]
        self.crossings = [
            boxing.disjoint_boxing(t.value.meta, t.result.meta) for t in staged.transfers
        ]
        self.sources = [place(t.value) for t in staged.transfers]
        self.received = [place(t.result) for t in staged.transfers]
        self.arriving: dict[Part, list[int]] = {part: [] for part in staged.segments}
        for index, transfer in enumerate(staged.transfers):
            self.arriving[transfer.target].append(index)
        sums = zip(staged.sums, staged.end.sums, strict=True)
        self.sums = [(value.number, place(total)) for value, total in sums]
        self.loose_sums = [(place(value), value) for value in staged.loose_sums()]
        self.made = [place(value) for value in program.outputs]
        self.outputs = [(place(value), value.meta) for value in end.outputs]
        self.assigns_before = [
            (place(variable), place(value))
            for variable, value in staged.assigns_after().get(None, ())
        ]
        last = zip(program.assigns, staged.end.assigned, strict=True)
        self.assigned = [(place(variable.value), place(value)) for (variable, _), value in last]
        self.assigns = [(v.tensor, place(value)) for v, value in end.assigns]
        self.written = [variable.tensor for variable in end.written()]
        kept = kept_by_outputs(program)
        self._kept = [v.tensor for v in program.variables if v.value.number in kept]
        self._kept_inputs = [i for i, v in enumerate(program.inputs) if v.number in kept]

    def call_lists(self) -> list[tuple[list[Call], Sequence[ProgramStep]]]:
        """All calls, with the steps that they are of."""
        staged = self.plan.staged
        ends = [
            (self.once, staged.once),
            (self.slices, staged.slices.steps),
            (self.feeds, staged.feeds),
            (self.end, self.end_steps),
        ]
        return [*ends, *((part.calls, part.steps) for part in self.parts.values())]

    def make_writable(self) -> None:
        """Give what steps write into memory of its own."""
        for tensor in self.written:
            writable(tensor)

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Run once; the outputs."""
        draws = self.program.draws
        draws.take(self.count)
        try:
            given = [x.shards for x in inputs]
            check_variables(self.variables)
            for index in self._kept_inputs:
                inputs[index].shared = True  # an output may be its memory
            self.make_writable()
            call = _Call(self, given)
            call.go()
            outputs = call.finish()
        except BaseException:
            draws.give_back()
            raise
        for tensor in self._kept:
            tensor.shared = True
        mark_written(self.written)
        return outputs


class _Call:
    """One call: the values of every micro-batch, the messages on their way, the sums."""

    def __init__(self, pipeline: Pipeline, inputs: Sequence[Shards]) -> None:
        self.pipeline = pipeline
        self.rank = world().rank
        plan, staged = pipeline.plan, pipeline.plan.staged
        base = pipeline.places.template.copy()
        for place, tensor, _ in pipeline.variables:
            base[place] = tensor.shards
        execute(pipeline.once, staged.once, base)
        self.base = base
        self.state = {place: base[place] for place, _ in pipeline.assigned}
        cut = base.copy()
        for place, shards in zip(pipeline.whole_inputs, inputs, strict=True):
            cut[place] = shards
        execute(pipeline.slices, staged.slices.steps, cut)
        self.values: list[list[Any]] = []
        for piece in pipeline.pieces:
            values = base.copy()
            for place, part in zip(pipeline.inputs, piece, strict=True):
                values[place] = cut[part]
            execute(pipeline.feeds, staged.feeds, values)
            for variable, _ in pipeline.assigns_before:
                values[variable] = self.state[variable]
            for variable, place in pipeline.assigns_before:
                self.state[variable] = values[place]
            self.values.append(values)
        self.groups = _groups(plan, self.rank)
        self.left = [plan.left(group) for group in range(len(plan.instructions))]
        self.totals: dict[int, tuple[Shards, bool]] = {}  # by number; whether in memory of its own
        self.mail: dict[tuple[int, int], Any] = {}
        self.sent: list[Posted] = []

    def go(self) -> None:
        """Follow the instructions to their end."""
        instructions = self.pipeline.plan.instructions
        next_of = dict.fromkeys(self.groups, 0)
        moved = True
        while moved:
            moved = False
            for group in self.groups:
                while next_of[group] < len(instructions[group]):
                    if not self._follow(group, instructions[group][next_of[group]]):
                        break
                    next_of[group] += 1
                    moved = True
        assert all(next_of[group] == len(instructions[group]) for group in self.groups)
        for posted in self.sent:
            posted.wait()

    def _follow(self, group: int, instruction: Instruction) -> bool:
        """Do one instruction; False when another group has to send first."""
        micro = instruction.micro_batch
        if isinstance(instruction, Message) and instruction.kind == "receive":
            self._expect(instruction.transfer, micro)
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
        execute(lowered.calls, lowered.steps, values)
        self._keep(lowered, values)
        return True

    def _keep(self, lowered: Lowered, values: list[Any]) -> None:
        for variable, place in lowered.assigns:
            self.state[variable] = values[place]
        self._add_up(lowered.sums, values)
        for place in lowered.dead:
            values[place] = None

    def _add_up(self, sums: Sequence[tuple[int, Value]], values: list[Any]) -> None:
        for place, value in sums:
            total = self.totals.get(value.number)
            more = values[place]
            self.totals[value.number] = (
                (more, False) if total is None else added(value, *total, more)
            )

    # Messages.

    def _send(self, index: int, micro: int) -> None:
        values, place = self.values[micro], self.pipeline.sources[index]
        disjoint_boxing = self.pipeline.crossings[index]
        if self.rank is None:
            self.mail[index, micro] = disjoint_boxing.carry(values[place], _NAME)
        elif values[place]:
            self.sent = [posted for posted in self.sent if not posted.done()]
            self.sent.append(disjoint_boxing.send(self.rank, values[place], _NAME))
        if index in self.pipeline.parts[self.pipeline.plan.staged.transfers[index].source].drops:
            values[place] = None

    def _expect(self, index: int, micro: int) -> None:
        if self.rank is not None and self._takes(index):
            disjoint_boxing = self.pipeline.crossings[index]
            self.mail[index, micro] = disjoint_boxing.expect(self.rank, _NAME)

    def _receive(self, index: int, micro: int) -> Any:
        disjoint_boxing = self.pipeline.crossings[index]
        if self.rank is None:
            return disjoint_boxing.arrive(self.mail.pop((index, micro)), _NAME)
        if not self._takes(index):
            return ()
        shards = disjoint_boxing.receive(self.rank, self.mail.pop((index, micro)), _NAME)
        return disjoint_boxing.arrive(shards, _NAME)

    def _takes(self, index: int) -> bool:
        target = self.pipeline.crossings[index].plan.dst.placement
        assert target is not None
        return self.rank in target.position

    # The end.

    def finish(self) -> list[Tensor]:
        """What is done after the micro-batches; the outputs."""
        pipeline, base = self.pipeline, self.base
        self._hand_over()
        execute(pipeline.end, pipeline.end_steps, base)
        for tensor, place in pipeline.assigns:
            if base[place]:
                take(tensor, shared(base[place], tensor.meta))
        return [shared(base[place], meta) for place, meta in pipeline.outputs]

    def _hand_over(self) -> None:
        """Put the sums, outputs and new values where the end expects them, and nowhere else."""
        pipeline, base = self.pipeline, self.base
        for values in self.values:
            self._add_up(pipeline.loose_sums, values)
        for number, place in pipeline.sums:
            total = self.totals.pop(number, None)
            base[place] = () if total is None else total[0]  # none: of other ranks' stage
        for values, results in zip(self.values, pipeline.results, strict=True):
            for made, place in zip(pipeline.made, results, strict=True):
                base[place] = values[made] or ()
        for variable, place in pipeline.assigned:
            base[place] = self.state[variable] or ()
        self.values.clear()
        self.state.clear()


def added(value: Value, total: Shards, own: bool, more: Shards) -> tuple[Shards, bool]:
    """The sum of a value with one micro-batch more, in the memory of the sum where it has its own.

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


def _groups(plan: StagePlan, rank: int | None) -> list[int]:
    """The groups that this process runs."""
    if rank is None:
        return list(range(len(plan.instructions)))
    found = plan.group(rank)
    return [] if found is None else [found]
