"""A global order of the actions of all ranks in which each action finds its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...errors import OnefoldRuntimeError
from .actions import Action, Schedule, needs


def advance(
    schedule: Schedule, edges: Sequence[tuple[int, int]] | None = None
) -> Iterator[tuple[int, Action]]:
    """Each action with its rank, after everything that it needs.

    Raises OnefoldRuntimeError once no rank can go on and some have not come to their end.

    >>> from onefold.graph.schedules.named_schedules import make
    >>> print(*(action for _, action in advance(make("1f1b", stages=2, micro_batches=1))))
    F0.0 F1.0 B1.0 B0.0
    """
    done: set[Action] = set()
    next_of = [0] * len(schedule.ranks)
    moved = True
    while moved:
        moved = False
        for rank, actions in enumerate(schedule.ranks):
            while next_of[rank] < len(actions):
                action = actions[next_of[rank]]
                if not all(each in done for each in needs(action, schedule.stages, edges)):
                    break
                yield rank, action
                done.add(action)
                next_of[rank] += 1
                moved = True
    waiting = [
        f"rank {rank} before {actions[at]}"
        for rank, (at, actions) in enumerate(zip(next_of, schedule.ranks, strict=True))
        if at < len(actions)
    ]
    if waiting:
        raise OnefoldRuntimeError(f"schedule {schedule.name} cannot run: {', '.join(waiting)} wait")
