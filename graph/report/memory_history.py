"""Memory history: what a rank holds during a call, by kind, and by name at the peak."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ...engine.meta import Meta
from ..compiled_graph import Compiled
from ..host_copies import FETCH
from ..ir import UPDATE, Program, ProgramStep, Value
from ..memory.arena import aligned
from ..memory.liveness import Buffer
from ..memory.memory_plan import MemoryPlan
from ..memory.stage_events import StageWork
from ..memory_traffic import local_bytes
from .event_clock import Floats
from .report_data import LiveTensor, Memory

PARAMETERS, BUFFERS, STATES, INPUTS = "parameters", "buffers", "optimizer states", "inputs"
ACTIVATIONS, GRADIENTS, COMMUNICATION = "activations", "gradients", "communication"
SLICES, RESERVED = "input slices", "driver and communicators"
_DURING = (SLICES, ACTIVATIONS, GRADIENTS, COMMUNICATION)  # of what a call allocates
_SAME_GRADIENT = ("boxing", "mul", "add")  # steps that add up, scale and move gradients
_NAMED = 40  # tensors of a peak that are listed
_POINTS = 10_000  # of the curves of all groups together
_MOST, _LEAST = 400, 60  # points of one curve


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a value comes from."""

    name: str
    kind: str
    meta: Meta


class MemoryHistory:
    """The histories of all ranks of a compiled graph; the names of its values are found once."""

    def __init__(self, compiled: Compiled, groups: int) -> None:
        self.compiled = compiled
        self.points = min(_MOST, max(_LEAST, _POINTS // max(groups, 1)))
        self._origins = dict(_origins(compiled))

    def of(
        self, plan: MemoryPlan, work: StageWork | None, times: Floats, reserved: int = 0
    ) -> Memory:
        """The memory of a plan's rank at these times, one for each step.

        `reserved` bytes are the driver's and the communicators'.
        """
        sums = {} if work is None else work.sums
        kinds = [self._origin(buffer, sums).kind for buffer in plan.buffers]
        change = {kind: np.zeros(plan.steps + 1, np.int64) for kind in _DURING}
        for buffer, kind in zip(plan.buffers, kinds, strict=True):
            nbytes = aligned(buffer.nbytes)
            change[kind][buffer.first] += nbytes
            change[kind][buffer.last + 1] -= nbytes
        curves = {kind: each.cumsum()[:-1] for kind, each in change.items() if each.any()}
        total = sum(curves.values(), start=np.zeros(plan.steps, np.int64))
        at = int(total.argmax()) if plan.steps else 0
        shown = _shown(total, times, self.points)
        constant = self._constant(plan, reserved)
        live, others = self._live(plan, at, kinds, sums, reserved)
        ticks = np.rint(1e9 * times[:-1]).astype(np.int64)
        return Memory(
            constant=constant,
            times=tuple(ticks[shown].tolist()),
            series={kind: tuple(curve[shown].tolist()) for kind, curve in curves.items()},
            peak=sum(constant.values()) + int(total.max(initial=0)),
            peak_at=int(ticks[at]) if plan.steps else 0,
            moment=plan.moment,
            live=live,
            others=others,
        )

    def _constant(self, plan: MemoryPlan, reserved: int) -> dict[str, int]:
        """The bytes that are live during the whole call, by kind."""
        found = Counter({RESERVED: reserved, STATES: plan.states, INPUTS: plan.inputs})
        for variable in self.compiled.program.variables:
            kind = PARAMETERS if variable.tensor.requires_grad else BUFFERS
            found[kind] += local_bytes(variable.value.meta, plan.rank)
        order = (RESERVED, PARAMETERS, STATES, BUFFERS, INPUTS)
        return {kind: found[kind] for kind in order if found[kind]}

    def _live(
        self,
        plan: MemoryPlan,
        at: int,
        kinds: list[str],
        sums: Mapping[int, Value],
        reserved: int,
    ) -> tuple[tuple[LiveTensor, ...], dict[str, tuple[int, int]]]:
        """The largest tensors at a step, and how many others there are of each kind."""
        found: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
        for buffer, kind in zip(plan.buffers, kinds, strict=True):
            if buffer.first <= at <= buffer.last:
                origin = self._origin(buffer, sums)
                entry = found[origin.name, kind, _form(origin.meta, plan.rank)]
                entry[0] += 1
                entry[1] += aligned(buffer.nbytes)
        for name, kind, meta in _persistent(self.compiled):
            if nbytes := local_bytes(meta, plan.rank):
                entry = found[name, kind, _form(meta, plan.rank)]
                entry[0] += 1
                entry[1] += nbytes
        if reserved:
            found[RESERVED, RESERVED, ""] = [1, reserved]
        largest = sorted(found.items(), key=lambda item: -item[1][1])
        live = tuple([LiveTensor(*key, *entry) for key, entry in largest[:_NAMED]])
        others: dict[str, tuple[int, int]] = {}
        for (_, kind, _), (count, nbytes) in largest[_NAMED:]:
            before = others.get(kind, (0, 0))
            others[kind] = before[0] + count, before[1] + nbytes
        return live, others

    def _origin(self, buffer: Buffer, sums: Mapping[int, Value]) -> _Origin:
        assert isinstance(buffer.key, tuple)  # with the lane
        number: int = buffer.key[0]
        if (added := sums.get(number)) is not None:
            origin = self._origins[added.number]
            return _Origin(f"sum of {origin.name}", GRADIENTS, origin.meta)
        return self._origins[number]


def _shown(total: np.ndarray, times: Floats, points: int) -> np.ndarray:
    """The steps at which a curve is drawn: the highest in each of equally long intervals."""
    if not len(total):
        return np.zeros(0, np.int64)
    makespan = float(times[-1]) or 1.0
    part = np.minimum((times[:-1] / makespan * points).astype(np.int64), points - 1)
    order = np.lexsort((total, part))
    last = np.flatnonzero(np.diff(part[order], append=points))  # the highest of each part
    return np.sort(order[last])


def _form(meta: Meta, rank: int) -> str:
    """Dtype and shape of a rank's shard."""
    position = 0 if meta.placement is None else meta.placement.position.get(rank)
    shape = () if position is None else meta.local_shape(position)
    return f"{str(meta.dtype).removeprefix('torch.')}{list(shape)}"


def _persistent(compiled: Compiled) -> Iterable[tuple[str, str, Meta]]:
    """The names, kinds and layouts of variables, optimizer states and inputs."""
    program = compiled.program
    for variable in program.variables:
        kind = PARAMETERS if variable.tensor.requires_grad else BUFFERS
        yield variable.value.name, kind, variable.value.meta
    for value in _states(compiled):
        yield value.name, STATES, value.meta
    whole = program.inputs if compiled.stages is None else compiled.stages.staged.slices.inputs
    for value in whole:
        yield value.name, INPUTS, value.meta


def _states(compiled: Compiled) -> list[Value]:
    stages = compiled.stages
    return (compiled.program if stages is None else stages.staged.end.program).states


def _origins(compiled: Compiled) -> Iterable[tuple[int, _Origin]]:
    """The origin of each value that a call makes, by its number."""
    programs: list[Program] = [compiled.program]
    staged = None if compiled.stages is None else compiled.stages.staged
    if staged is not None:
        programs += [staged.slices, staged.end.program]
        for value in staged.program.inputs:
            yield value.number, _Origin(f"slice of {value.name}", SLICES, value.meta)
    for program in programs:
        gradients = dict(_gradients(program))
        for step in program.steps:
            for value in step.outputs:
                name = gradients.get(value.number) or _name(step)
                yield value.number, _Origin(name, _kind(step), value.meta)
    for step in () if staged is None else staged.slices.steps:
        for value in step.outputs:
            yield value.number, _Origin("slice of the inputs", SLICES, value.meta)


def _name(step: ProgramStep) -> str:
    return f"{step.scope}: {step.name}" if step.scope else step.name


def _gradients(program: Program) -> Iterable[tuple[int, str]]:
    """The names of gradients, by the number of the value in each form that it takes."""
    makers = program.makers()
    for variable, value in program.gradients:
        name = f"gradient of {variable.value.name}"
        left = [value]
        while left:
            value = left.pop()
            yield value.number, name
            maker = makers.get(value.number)
            if maker is None:
                continue
            if maker.name in _SAME_GRADIENT:
                left += maker.reads()
            elif maker.name == "unflatten_gradients":
                flat = makers.get(maker.source.number)
                while flat is not None and flat.start is not None:
                    flat = makers.get(flat.source.number)
                if flat is not None and flat.name == "flatten_gradients":
                    left.append(list(flat.reads())[maker.outputs.index(value)])


def _kind(step: ProgramStep) -> str:
    if step.start is not None:
        return COMMUNICATION
    if step.origin is FETCH:
        return ACTIVATIONS
    if step.scope == UPDATE or (step.backward and not step.recomputation):
        return GRADIENTS
    return ACTIVATIONS
