"""Simulation: the time, memory and bytes of one call of a compiled graph on described hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ...engine.cluster import planned
from ...errors import OnefoldValueError
from .. import trace_format
from ..compiled_graph import Compiled
from ..hardware import Hardware, read
from ..job_summary import alike, metas_of, runs
from ..memory_traffic import readable
from ..setting_checks import integer
from .event_simulation import Timeline, run
from .program_tasks import add_program
from .rank_work import RankWork, Tasks
from .stage_tasks import add_stages

_ROWS = ("compute", "communication", "copies")  # of a trace
_MAX_GROUPS = 32  # that are printed


@dataclass(frozen=True)
class RankTimes:
    """Ranks that do the same, each in a call: seconds, flop, and bytes."""

    ranks: tuple[int, ...]
    compute: float
    communication: float  # also where other work hides it
    waiting: float  # for other ranks
    flop: Mapping[torch.dtype, int]  # of matrix products, without what checkpoints compute again
    flop_again: float
    traffic: Mapping[tuple[str, str], int]  # received, by kind of collective and name of the link
    memory: int | None  # at the peak, of everything; None where it was not asked for
    moment: str = ""  # the step during which most is live, and its place in the call
    reserved: int = 0  # of the memory, what the device's driver and the communicators take

    @property
    def received(self) -> dict[str, int]:
        """Bytes by name of the link."""
        found: dict[str, int] = {}
        for (_, link), nbytes in self.traffic.items():
            found[link] = found.get(link, 0) + nbytes
        return found


@dataclass(frozen=True)
class Simulation:
    """The time, bytes and memory of one call, which can be printed; `groups` are equal ranks."""

    hardware: Hardware
    groups: tuple[RankTimes, ...]
    timeline: Timeline = field(repr=False)  # its tasks have the numbers of groups as ranks
    tokens: int | None = None  # of one call

    @property
    def step_time(self) -> float:
        """Seconds from the start of a call to the end of the last rank's work."""
        return self.timeline.makespan

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return sum(len(group.ranks) for group in self.groups)

    @property
    def tokens_per_second(self) -> float | None:
        """Of all ranks together; None without `tokens`."""
        return None if self.tokens is None else self.tokens / self.step_time

    @property
    def mfu(self) -> float:
        """Model flop utilization: the share of the time in which the flop could be done at peak.

        What checkpoints compute again does not count. Source: Chowdhery et al., "PaLM" (2022).
        """
        least = sum(
            len(group.ranks) * flop / self.hardware.flops(dtype)
            for group in self.groups
            for dtype, flop in group.flop.items()
        )
        return least / (self.ranks * self.step_time) if self.step_time else 0.0

    @property
    def bubble(self) -> float:
        """Seconds in which even the busiest ranks wait for others."""
        return min(group.waiting for group in self.groups)

    @property
    def received(self) -> dict[str, int]:
        """Bytes that all ranks together receive, by name of the link."""
        found: Counter[str] = Counter()
        for group in self.groups:
            found.update(
                {link: nbytes * len(group.ranks) for link, nbytes in group.received.items()}
            )
        return dict(found)

    @property
    def memory(self) -> int | None:
        """The bytes of the rank that needs most."""
        return max((g.memory for g in self.groups if g.memory is not None), default=None)

    @property
    def fits(self) -> bool | None:
        """Whether everything fits in the memory of a device; None where it was not asked for."""
        return None if self.memory is None else self.memory <= self.hardware.memory_bytes

    def save_trace(self, path: str | Path) -> None:
        """Write a Chrome trace, which Perfetto opens: a process for each group of equal ranks."""
        groups = enumerate(self.groups)
        names = {i: f"rank{'s' * (len(g.ranks) > 1)} {runs(g.ranks)}" for i, g in groups}
        trace_format.save(self._spans(), path, names, _ROWS)

    def _spans(self) -> Iterator[trace_format.Span]:
        line = self.timeline
        for task, start, end in zip(line.tasks, line.starts, line.ends, strict=True):
            row, about = _ROWS.index(task.stream), task.about
            details: dict[str, object] = {"bytes": about.nbytes} if about.nbytes else {}
            if about.module:
                details["module"] = about.module
            yield trace_format.Span(
                task.name,
                about.kind or task.stream,
                task.rank,
                row,
                1e6 * start,
                1e6 * end,
                details,
            )

    def __str__(self) -> str:
        step = self.step_time
        lines = [
            f"one call on {self.hardware.name}: {self.ranks} ranks, {len(self.groups)} different",
            f"step time   {_seconds(step)}",
        ]
        if self.tokens_per_second is not None:
            lines.append(f"tokens/s    {self.tokens_per_second:,.0f}")
        lines.append(f"MFU         {100 * self.mfu:.1f}%")
        lines.append(f"bubble      {100 * self.bubble / step if step else 0.0:.1f}%")
        for link, nbytes in self.received.items():
            lines.append(f"received    {readable(nbytes)} over {link}")
        if self.memory is not None:
            fits = "fits in" if self.fits else "more than the"
            has = readable(self.hardware.memory_bytes)
            lines.append(f"memory      {readable(self.memory)} at most, {fits} {has} of a device")
        titles = ("ranks", "compute", "communication", "waiting", "memory", "at the step")
        rows: list[tuple[str, ...]] = [titles if self.memory is not None else titles[:4]]
        rows += [_row(group) for group in self.groups[:_MAX_GROUPS]]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        more = len(self.groups) - _MAX_GROUPS
        return "\n".join([*lines, *[f"and {more} more groups"] * (more > 0)])


def simulate(
    compiled: Compiled,
    hardware: str | Path | Hardware | None = None,
    tokens: int | None = None,
    memory: bool = True,
) -> Simulation:
    """Simulate one call of a compiled graph, whose ranks need not exist.

    Each rank has a stream that computes and one that communicates. They do what the executor does:
    the steps in the order of the program, or with stages the instructions of the rank's group.
    `nn.Graph.simulate` has the arguments.
    """
    machine = _machine(hardware)
    if tokens is not None:
        integer("simulate: tokens", tokens, least=1)
    groups_of_ranks = alike(metas_of(compiled.program, compiled.stages)) or [(0,)]
    tasks = Tasks(machine, groups_of_ranks)
    if compiled.stages is None:
        add_program(tasks, compiled.program)
    else:
        add_stages(tasks, compiled.stages)
    timeline = run(tasks.tasks, machine.contention)
    groups = tuple(
        _group(work, timeline, index, compiled if memory else None, _reserved(tasks, work.rank))
        for index, work in enumerate(tasks.works)
    )
    return Simulation(machine, groups, timeline, tokens)


def _machine(hardware: str | Path | Hardware | None) -> Hardware:
    """The record of a machine; without a name, of that of the cluster that is planned."""
    cluster = planned()
    if hardware is None and cluster is not None:
        hardware = cluster.hardware
    if hardware is None:
        raise OnefoldValueError(
            'simulate: no hardware is given; name it, as in graph.simulate("h100"), or in '
            'flow.planning(size, hardware="h100")'
        )
    return read(hardware)


def _reserved(tasks: Tasks, rank: int) -> int:
    """The bytes that the driver and the communicators of a rank occupy."""
    machine, communicators = tasks.hardware, len(tasks.comm.groups[rank])
    return machine.context_bytes + communicators * machine.communicator_bytes


def _group(
    work: RankWork, timeline: Timeline, index: int, compiled: Compiled | None, reserved: int
) -> RankTimes:
    done = work.done
    plan = None if compiled is None else compiled.memory(work.rank)
    return RankTimes(
        ranks=work.ranks,
        compute=done.seconds - done.moved.seconds - done.stalled,
        communication=done.moved.seconds + done.copied,
        waiting=timeline.makespan - timeline.busy.get(index, 0.0),
        flop=dict(done.flop),
        flop_again=done.flop_again,
        traffic=done.moved.traffic,
        memory=None if plan is None else plan.total + reserved,
        moment="" if plan is None else plan.moment,
        reserved=reserved,
    )


def _row(group: RankTimes) -> tuple[str, ...]:
    times = (group.compute, group.communication, group.waiting)
    memory = () if group.memory is None else (readable(group.memory), group.moment)
    return runs(group.ranks), *map(_seconds, times), *memory


def _seconds(seconds: float) -> str:
    """A time in a unit that suits it.

    >>> _seconds(0.0123)
    '12.3 ms'
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"
