"""Timeline tracks: the events of a simulation, or of a schedule alone, as lists of numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ..schedules.simulate import Times, simulate
from ..simulator import Simulation
from ..simulator.event_simulation import Lane
from ..stages.stage_plan import StagePlan
from .event_clock import Span
from .report_data import Label, Timeline, Track

KINDS = {"F": "forward", "B": "backward", "I": "backward", "W": "weights"}


def simulated(simulation: Simulation) -> Timeline:
    """The events of a simulation."""
    line = simulation.timeline
    lanes: dict[Lane, list[tuple[float, float, Label]]] = defaultdict(list)
    for task, start, end in zip(line.tasks, line.starts, line.ends, strict=True):
        about = task.about
        kind = about.kind or task.stream
        label = Label(task.name, kind, about.module, about.nbytes, _ticks(task.seconds))
        lanes[task.lane].append((start, end, label))
    return _timeline("s", simulation.step_time, lanes)


def scheduled(plan: StagePlan, groups: Sequence[int | None]) -> Timeline:
    """A schedule in which each action takes 1, of groups on these ranks of the schedule, if any."""
    found = simulate(plan.schedule, Times(), plan.staged.edges())
    lanes: dict[Lane, list[tuple[float, float, Label]]] = {}
    for index, group in enumerate(groups):
        events = []
        for action in () if group is None else plan.schedule.ranks[group]:
            start, end = found.spans[action]
            events.append(
                (start, end, Label(str(action), KINDS[action.kind], "", 0, _ticks(end - start)))
            )
        lanes[index, "compute"] = events
    return _timeline("", found.makespan, lanes)


def spans_of(timeline: Timeline, group: int) -> list[Span]:
    """What a group computes: names, starts and ends in seconds."""
    found: list[Span] = []
    for track in timeline.tracks:
        if track.group == group and track.stream == "compute":
            now = 0
            for at in range(0, len(track.events), 3):
                number, wait, duration = track.events[at : at + 3]
                now += wait + duration
                name = timeline.labels[number].name
                found.append((name, (now - duration) / 1e9, now / 1e9))
    return found


def _timeline(
    unit: str, span: float, lanes: dict[Lane, list[tuple[float, float, Label]]]
) -> Timeline:
    labels: dict[Label, int] = {}
    tracks = []
    for (group, stream), events in sorted(lanes.items()):
        numbers: list[int] = []
        before = 0
        for start, end, label in events:
            begins, ends = _ticks(start), _ticks(end)
            number = labels.setdefault(label, len(labels))
            numbers += (number, begins - before, ends - begins)
            before = ends
        tracks.append(Track(group, stream, tuple(numbers)))
    return Timeline(unit, span, tuple(labels), tuple(tracks))


def _ticks(time: float) -> int:
    """Whole nanoseconds."""
    return round(1e9 * time)
