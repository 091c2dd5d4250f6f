"""Stage copies: copies of a stage's activations to the host and back, during other actions.

A copy to the host that is not done when its forward (F) ends continues during the rank's next
action, and after that R (release) waits for it. Copies back that backward needs at once begin in P
(prefetch), before the action that precedes it. So a micro-batch whose stage has few steps can wait
on the host, too, as long as others are between its forward and its backward (as in Wan et al.,
"PipeOffload", 2025).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TypeAlias

from ..host_copies import FETCH, RELEASE
from ..ir import ProgramStep
from ..schedules.actions import Action, Kind

Segments: TypeAlias = dict[tuple[Kind, int], list[ProgramStep]]


def with_copies_apart(segments: Segments) -> Segments:
    """The segments, with those of R after F and of P before B or I where there are copies."""
    found: Segments = {}
    for (kind, stage), steps in segments.items():
        if kind == "F":
            count = _leading(steps[::-1], RELEASE)
            found[kind, stage] = steps[: len(steps) - count]
            if count:
                found["R", stage] = steps[len(steps) - count :]
            continue
        count = _leading(steps, FETCH) if kind != "W" else 0
        if count:
            found["P", stage] = steps[:count]
        found[kind, stage] = steps[count:]
    return found


def with_copies(
    actions: Sequence[Action], segments: Mapping[tuple[Kind, int], object]
) -> dict[int, list[Action]]:
    """The R and P of a rank, by the index of the action of its schedule that they precede.

    >>> from onefold.graph.schedules.named_schedules import make
    >>> order = make("gpipe", stages=1, micro_batches=4).ranks[0]
    >>> found = with_copies(order, {("R", 0): [], ("P", 0): []})
    >>> [(at, " ".join(map(str, copies))) for at, copies in found.items()]
    [(2, 'R0.0'), (3, 'R0.1 P0.0'), (4, 'R0.2 P0.1'), (5, 'R0.3 P0.2'), (6, 'P0.3')]
    """
    at = {action: index for index, action in enumerate(actions)}
    released: defaultdict[int, list[Action]] = defaultdict(list)
    begun: defaultdict[int, list[Action]] = defaultdict(list)
    for index, action in enumerate(actions):
        stage, micro = action.stage, action.micro_batch
        release, begin = Action("R", stage, micro), Action("P", stage, micro)
        there = [each for each in (release, begin) if (each.kind, stage) in segments]
        if action.kind != "F" or not there:
            continue
        both = Action("B", stage, micro)
        backward = at[both if both in at else Action("I", stage, micro)]
        free = min(index + 2, backward)
        if release in there:
            released[free].append(release)
        if begin in there:
            begun[max(backward - 1, free)].append(begin)
    return {at: [*released[at], *begun[at]] for at in sorted({*released, *begun})}


def _leading(steps: Sequence[ProgramStep], origin: str) -> int:
    """How many of the first steps are of this origin."""
    return len(list(takewhile(lambda step: step.origin == origin, steps)))
