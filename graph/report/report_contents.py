"""Report contents: gathered from a compiled graph, and from its simulation if there is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf

import numpy as np

from ...engine.meta import Meta
from ...engine.placement import Placement
from ...engine.sbp import short
from ...errors import OnefoldTypeError
from ..compiled_graph import Compiled
from ..hardware import Hardware
from ..hardware.hardware_record import Curve
from ..job_summary import runs
from ..memory.stage_events import StageWork, stage_work
from ..memory_traffic import local_bytes
from ..simulator import Simulation
from .event_clock import step_times
from .memory_history import BUFFERS, PARAMETERS, MemoryHistory
from .report_data import (
    Candidate,
    Group,
    LinkFacts,
    Machine,
    Memory,
    Parameter,
    Report,
    Searched,
    Timeline,
    Totals,
    Traffic,
)
from .timeline_tracks import scheduled, simulated, spans_of


def gather(
    title: str,
    compiled: Compiled,
    simulation: Simulation | None = None,
    searched: Iterable[Searched] = (),
    memory: bool = True,
) -> Report:
    """The contents of the page for a call.

    Without a simulation there are no times, and bytes are not told apart by link. Raises
    OnefoldTypeError for a row of `searched` without what a row has.
    """
    candidates = tuple([_candidate(row, number) for number, row in enumerate(searched)])
    ranks = _ranks(compiled, simulation)
    timeline = _timeline(compiled, simulation, ranks)
    reserved = [0] * len(ranks)
    if simulation is not None:
        reserved = [group.reserved for group in simulation.groups]
    histories = _histories(compiled, ranks, timeline, reserved) if memory else ()
    peaks = [each.peak for each in histories] if memory else [None] * len(ranks)
    groups = _groups(compiled, simulation, ranks, peaks)
    parameters = tuple(_parameters(compiled))
    schedule = None if compiled.stages is None else compiled.stages.schedule
    return Report(
        title=title,
        totals=Totals(
            ranks=sum(map(len, ranks)),
            different=len(ranks),
            parameters=sum(each.numel for each in parameters if each.kind == PARAMETERS),
            step_time=None if simulation is None else simulation.step_time,
            tokens=None if simulation is None else simulation.tokens,
            tokens_per_second=None if simulation is None else simulation.tokens_per_second,
            mfu=None if simulation is None else simulation.mfu,
            bubble=None if simulation is None else simulation.bubble,
            received=sum(group.count * group.received for group in groups),
            memory=max((peak for peak in peaks if peak is not None), default=None),
            schedule="" if schedule is None else schedule.name,
            micro_batches=(schedule or compiled.program).micro_batches,
            stages=0 if schedule is None else schedule.stages,
        ),
        groups=groups,
        timeline=timeline,
        memory=histories,
        traffic=() if simulation is None else _traffic(simulation),
        parameters=parameters,
        machine=None if simulation is None else _machine(simulation.hardware),
        searched=candidates,
    )


def _ranks(compiled: Compiled, simulation: Simulation | None) -> list[tuple[int, ...]]:
    """The ranks of each group."""
    if simulation is not None:
        return [group.ranks for group in simulation.groups]
    # Where everything is local, one rank stands for all.
    return [group.ranks for group in compiled.summary.groups] or [(0,)]


def _timeline(
    compiled: Compiled, simulation: Simulation | None, ranks: Sequence[tuple[int, ...]]
) -> Timeline | None:
    if simulation is not None:
        return simulated(simulation)
    plan = compiled.stages
    if plan is None:
        return None
    return scheduled(plan, [plan.group(each[0]) for each in ranks])


def _histories(
    compiled: Compiled,
    ranks: Sequence[tuple[int, ...]],
    timeline: Timeline | None,
    reserved: Sequence[int],
) -> tuple[Memory, ...]:
    history = MemoryHistory(compiled, len(ranks))
    works: dict[tuple[int, ...], StageWork] = {}
    found = []
    for index, (rank, *_) in enumerate(ranks):
        plan = compiled.memory(rank)
        work, stages = None, _stages(compiled, rank)
        if compiled.stages is not None:
            work = works.get(stages) or stage_work(compiled.stages, rank)
            works[stages] = work
        if timeline is None:
            times = np.arange(plan.steps + 1, dtype=np.float64)
        else:
            spans = spans_of(timeline, index)
            times = step_times(compiled, work, rank, plan.steps, spans, timeline.span)
        found.append(history.of(plan, work, times, reserved[index]))
    return tuple(found)


def _groups(
    compiled: Compiled,
    simulation: Simulation | None,
    ranks: Sequence[tuple[int, ...]],
    peaks: Sequence[int | None],
) -> tuple[Group, ...]:
    found = []
    for index, (each, peak) in enumerate(zip(ranks, peaks, strict=True)):
        times = None if simulation is None else simulation.groups[index]
        if times is None:
            group = compiled.summary.group(each[0])
            received = 0 if group is None else group.received
        else:
            received = sum(times.traffic.values())
        found.append(
            Group(
                stages=_stages(compiled, each[0]),
                ranks=runs(each),
                count=len(each),
                compute=None if times is None else times.compute,
                communication=None if times is None else times.communication,
                waiting=None if times is None else times.waiting,
                received=received,
                memory=peak,
            )
        )
    return tuple(found)


def _stages(compiled: Compiled, rank: int) -> tuple[int, ...]:
    plan = compiled.stages
    group = None if plan is None else plan.group(rank)
    return () if plan is None or group is None else tuple(plan.stages(group))


def _traffic(simulation: Simulation) -> tuple[Traffic, ...]:
    total: Counter[tuple[str, str]] = Counter()
    most: dict[tuple[str, str], int] = {}
    for group in simulation.groups:
        for key, nbytes in group.traffic.items():
            total[key] += len(group.ranks) * nbytes
            most[key] = max(most.get(key, 0), nbytes)
    rows = [Traffic(*key, nbytes, most[key]) for key, nbytes in total.most_common()]
    return tuple([row for row in rows if row.total])


def _parameters(compiled: Compiled) -> Iterable[Parameter]:
    plan = compiled.stages
    program = compiled.program if plan is None else plan.staged.end.program
    kept: Counter[str] = Counter()  # bytes of optimizers, by parameter
    for state in program.states:
        kept[state.name.rpartition("-")[0]] += local_bytes(state.meta, _first(state.meta))
    for variable in compiled.program.variables:
        meta, name = variable.value.meta, variable.value.name
        yield Parameter(
            name=name,
            kind=PARAMETERS if variable.tensor.requires_grad else BUFFERS,
            dtype=str(meta.dtype).removeprefix("torch."),
            shape=tuple(meta.shape),
            sbp=short(meta.nd_sbp) if meta.placement is not None else "local",
            placement=_where(meta.placement, str(meta.device)),
            stages=_stages(compiled, _first(meta)) if meta.placement is not None else (),
            numel=meta.numel,
            nbytes=local_bytes(meta, _first(meta)),
            state=kept[name],
        )


def _first(meta: Meta) -> int:
    """The first rank that has a shard, which is as large as any."""
    return 0 if meta.placement is None else meta.placement.flat_ranks[0]


def _where(placement: Placement | None, device: str) -> str:
    if placement is None:
        return device
    mesh = " x ".join(map(str, placement.shape))
    return f"{placement.type} {runs(tuple(sorted(placement.flat_ranks)))} ({mesh})"


def _machine(hardware: Hardware) -> Machine:
    def points(curve: Curve) -> tuple[tuple[float, float], ...]:
        return curve.points

    return Machine(
        name=hardware.name,
        peak={str(k).removeprefix("torch."): rate for k, rate in hardware.peak.items()},
        memory_bytes=hardware.memory_bytes,
        memory_bandwidth=hardware.memory_bandwidth,
        launch=hardware.launch,
        launches_ahead=hardware.launches_ahead,
        contention=hardware.contention,
        narrow=hardware.narrow,
        context_bytes=hardware.context_bytes,
        communicator_bytes=hardware.communicator_bytes,
        host_bandwidth=None if hardware.host_bandwidth == inf else hardware.host_bandwidth,
        host_bytes=hardware.host_bytes,
        curves={
            "matmul": points(hardware.matmul),
            "attention": points(hardware.attention),
            "memory": points(hardware.memory),
        },
        ops=dict(hardware.ops),
        links=tuple(
            LinkFacts(
                name=link.name,
                ranks=None if link.ranks == inf else int(link.ranks),
                bandwidth=link.bandwidth,
                latency=link.latency,
                launch=link.launch,
                algorithms=link.algorithms,
                message=link.message,
                efficiency=points(link.efficiency),
            )
            for link in hardware.links
        ),
    )


def _candidate(row: Searched, number: int) -> Candidate:
    needed = ("name", "seconds", "memory", "description")
    missing = [name for name in needed if not hasattr(row, name)]
    if missing:
        raise OnefoldTypeError(
            f"report: row {number} of searched is a {type(row).__name__} without "
            f"{', '.join(missing)}; rows have {', '.join(needed)}"
        )
    seconds, memory = row.seconds, row.memory
    return Candidate(
        name=str(row.name),
        seconds=None if seconds is None else float(seconds),
        memory=None if memory is None else int(memory),
        description=str(row.description),
    )
