"""A schedule as a text diagram: a row per rank, a column per unit of time."""

from __future__ import annotations

from collections.abc import Sequence

from .simulate import Timeline


def diagram(timeline: Timeline, unit: float = 1.0, updates: Sequence[float] = ()) -> str:
    """The timeline with one column per `unit`: F and the micro-batch, b for B and I, w for W.

    `updates` are the times at which the ranks begin to update their parameters, shown as U.

    >>> from onefold.graph.schedules.named_schedules import make
    >>> from onefold.graph.schedules.simulate import Times, simulate
    >>> print(diagram(simulate(make("1f1b", stages=2, micro_batches=2), Times(1, 1, 0))))
    0 F0 F1 .. b0 .. b1
    1 .. F0 b0 F1 b1 ..
    """
    schedule = timeline.schedule
    columns = round(max([timeline.makespan, *(time + unit for time in updates)]) / unit)
    digits = max(len(str(schedule.micro_batches - 1)), len(str(len(schedule.ranks) - 1)))
    letters = {"F": "F", "B": "b", "I": "b", "W": "w"}
    lines = []
    for rank, actions in enumerate(schedule.ranks):
        cells = ["." * (digits + 1)] * columns
        for action in actions:
            start, end = timeline.spans[action]
            text = letters[action.kind] + str(action.micro_batch).ljust(digits)
            for column in range(round(start / unit), round(end / unit)):
                cells[column] = text
        if updates:
            cells[round(updates[rank] / unit)] = "U".ljust(digits + 1)
        lines.append(f"{rank:<{digits}} " + " ".join(cells).rstrip())
    return "\n".join(lines)
