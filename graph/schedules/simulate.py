"""Simulates a schedule: the start and end of each action, given the times of stages and
transfers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .action_order import advance
from .actions import Action, Schedule, needs


@dataclass(frozen=True, slots=True)
class Times:
    """How long one stage takes for one micro-batch, and one transfer, in any one unit."""

    forward: float = 1.0
    input_gradient: float = 1.0
    weight_gradient: float = 1.0
    transfer: float = 0.0

    def of(self, action: Action) -> float:
        backward = {"I": self.input_gradient, "W": self.weight_gradient}
        both = self.input_gradient + self.weight_gradient
        return self.forward if action.kind == "F" else backward.get(action.kind, both)


@dataclass(frozen=True)
class Timeline:
    """When each action of a schedule starts and ends."""

    schedule: Schedule
    spans: dict[Action, tuple[float, float]]
    work: float  # of the busiest rank

    @property
    def makespan(self) -> float:
        """From the first start to the last end."""
        return max(end for _, end in self.spans.values())

    @property
    def cost(self) -> float:
        """The longest time from a rank's first start to its last end (as in Qi et al., 2023)."""
        return max(
            self.spans[actions[-1]][1] - self.spans[actions[0]][0]
            for actions in self.schedule.ranks
        )

    @property
    def bubble(self) -> float:
        """The part of `cost` in which the busiest rank has nothing to do."""
        return self.cost - self.work

    @property
    def bubble_rate(self) -> float:
        return self.bubble / self.cost


def simulate(
    schedule: Schedule, times: Times, edges: Sequence[tuple[int, int]] | None = None
) -> Timeline:
    """Run every rank's actions in order, each as soon as what it needs has arrived.

    Sends do not block. Raises OnefoldRuntimeError when the schedule cannot run to its end.

    >>> from onefold.graph.schedules.named_schedules import make
    >>> simulate(make("1f1b", stages=4, micro_batches=8), Times()).bubble
    9.0
    """
    spans: dict[Action, tuple[float, float]] = {}
    free = [0.0] * len(schedule.ranks)

    def do(rank: int, action: Action) -> None:
        ready = [free[rank]]
        for each in needs(action, schedule.stages, edges):
            far = schedule.rank_of[each.stage] != rank
            ready.append(spans[each][1] + times.transfer * far)
        start = max(ready)
        free[rank] = start + times.of(action)
        spans[action] = (start, free[rank])

    advance(schedule, edges, do)
    work = max(sum(map(times.of, actions)) for actions in schedule.ranks)
    return Timeline(schedule, spans, work)
