"""Timeline tracks: the events of a simulation, or of a schedule alone, as lists of numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from ..schedules.simulate import Times, simulate
from ..simulator import Simulation
from ..simulator.event_simulation import Lane
from ..stages.stage_plan import StagePlan
from .event_clock import Span
from .report_data import Label, Timeline, Track

Event: TypeAlias = tuple[float, float, Label, int]  # start, end, label, micro-batch
KINDS = {"F": "forward", "B": "backward", "I": "backward", "W": "weights"}


def simulated(simulation: Simulation) -> Timeline:
    """The events of a simulation."""
    line = simulation.timeline
    lanes: dict[Lane, list[Event]] = defaultdict(list)
    for task, start, end in zip(line.tasks, line.starts, line.ends, strict=True):
        about = task.about
        if about.kind == "copies" and task.stream == "compute":
            continue  # it begins copies, or waits for them
        kind = about.kind or task.stream
        micro_batch = -1 if about.micro_batch is None else about.micro_batch
        name = task.name if micro_batch < 0 else task.name.removesuffix(str(micro_batch))
        label = Label(name, kind, about.module, about.nbytes, _ticks(task.seconds))
        lanes[task.lane].append((start, end, label, micro_batch))
    return _timeline("s", simulation.step_time, lanes)


def scheduled(plan: StagePlan, groups: Sequence[int | None]) -> Timeline:
    """A schedule in which each action takes 1, of groups on these ranks of the schedule, if any."""
    found = simulate(plan.schedule, Times(), plan.staged.edges())
    lanes: dict[Lane, list[Event]] = {}
    for index, group in enumerate(groups):
        events = []
        for action in () if group is None else plan.schedule.ranks[group]:
            start, end = found.spans[action]
            name = str(action).removesuffix(str(action.micro_batch))
            label = Label(name, KINDS[action.kind], "", 0, _ticks(end - start))
            events.append((start, end, label, action.micro_batch))
        lanes[index, "compute"] = events
    return _timeline("", found.makespan, lanes)


def spans_of(timeline: Timeline, group: int) -> list[Span]:
    """What a group computes: names, starts and ends in seconds."""
    found: list[Span] = []
    for track in timeline.tracks:
        if track.group == group and track.stream == "compute":
            now = 0
            for at in range(0, len(track.events), 4):
                number, wait, duration, micro_batch = track.events[at : at + 4]
                now += wait + duration
                name = timeline.labels[number].name + (str(micro_batch) if micro_batch >= 0 else "")
                found.append((name, (now - duration) / 1e9, now / 1e9))
    return found


def _timeline(unit: str, span: float, lanes: dict[Lane, list[Event]]) -> Timeline:
    labels: dict[Label, int] = {}
    tracks = []
    for (group, stream), events in sorted(lanes.items()):
        numbers: list[int] = []
        before = 0
        for start, end, label, micro_batch in events:
            begins, ends = _ticks(start), _ticks(end)
            number = labels.setdefault(label, len(labels))
            numbers += (number, begins - before, ends - begins, micro_batch)
            before = ends
        tracks.append(Track(group, stream, tuple(numbers)))
    return Timeline(unit, span, tuple(labels), tuple(tracks))


def _ticks(time: float) -> int:
    """Whole nanoseconds."""
    return round(1e9 * time)
