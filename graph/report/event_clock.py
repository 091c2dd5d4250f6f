"""Event clock: when the steps of a memory plan are done, by the events of a timeline.

A memory plan counts steps. The tasks of a timeline are these steps, or with stages whole actions;
inside an action its steps are spread evenly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..async_boxing import split_boxings
from ..compiled_graph import Compiled
from ..ir import ProgramStep
from ..memory.stage_events import StageWork

Floats = NDArray[np.float64]
Span = tuple[str, float, float]  # name, start, end


def step_times(
    compiled: Compiled,
    work: StageWork | None,
    rank: int,
    steps: int,
    spans: Sequence[Span],
    makespan: float,
) -> Floats:
    """The start of each of the `steps` of a rank's memory plan, and the end of the last.

    `spans` are what the rank computes, in order; `work` are the actions of a graph with stages.
    """
    if work is None:
        pairs = _of_steps(compiled, rank, steps, spans)
    else:
        pairs = _of_actions(work, spans)
    known = sorted({(0, 0.0), *pairs, (steps, makespan)})
    at, times = zip(*known, strict=True)
    # Where actions of the schedule overlap in the plan, time does not go back.
    return np.interp(np.arange(steps + 1), at, np.maximum.accumulate(times))


def _of_actions(work: StageWork, spans: Sequence[Span]) -> Iterable[tuple[int, float]]:
    found = {name: (start, end) for name, start, end in spans}
    for action, first, after in work.actions:
        if (times := found.get(str(action))) is not None:
            yield first, times[0]
            yield after, times[1]


def _of_steps(
    compiled: Compiled, rank: int, count: int, spans: Sequence[Span]
) -> Iterable[tuple[int, float]]:
    steps: Sequence[ProgramStep] = compiled.program.steps
    if len(steps) != count:  # planned where boxings are begun early
        steps = split_boxings(compiled.program)
    remaining = iter(spans)
    span = next(remaining, None)
    for at, step in enumerate(steps):
        if span is None:
            return
        if step.start is None and step.name == span[0] and _takes_part(step, rank):
            yield at, span[1]
            yield at + 1, span[2]
            span = next(remaining, None)


def _takes_part(step: ProgramStep, rank: int) -> bool:
    if not step.outputs and not step.writes:
        return False
    placements = {value.meta.placement for value in (*step.outputs, *step.reads())}
    return any(each is None or rank in each.position for each in placements)
