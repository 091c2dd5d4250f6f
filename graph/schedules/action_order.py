"""Orders the actions of several ranks, such that every action finds its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...errors import OnefoldRuntimeError
from .actions import Action, Schedule, needs

T = TypeVar("T")


def in_turn(lists: Sequence[Sequence[T]], do: Callable[[int, T], bool]) -> list[int]:
    """Call `do(index of the list, item)` for the items of every list in its order.

    Where it returns False, the item waits until others of other lists are done. Returns how many
    items of each list are done when none can be.
    """
    done = [0] * len(lists)
    moved = True
    while moved:
        moved = False
        for index, items in enumerate(lists):
            while done[index] < len(items) and do(index, items[done[index]]):
                done[index] += 1
                moved = True
    return done


def advance(
    schedule: Schedule,
    edges: Sequence[tuple[int, int]] | None = None,
    do: Callable[[int, Action], object] = lambda rank, action: None,
) -> None:
    """Call `do(rank, action)` for each action, after everything that it needs.

    Raises OnefoldRuntimeError when no rank can continue and some have actions left.

    >>> from onefold.graph.schedules.named_schedules import make
    >>> advance(make("1f1b", stages=2, micro_batches=1), do=lambda rank, action: print(action))
    F0.0
    F1.0
    B1.0
    B0.0
    """
    found: set[Action] = set()

    def try_to(rank: int, action: Action) -> bool:
        if not all(each in found for each in needs(action, schedule.stages, edges)):
            return False
        do(rank, action)
        found.add(action)
        return True

    done = in_turn(schedule.ranks, try_to)
    waiting = [
        f"rank {rank} before {actions[at]}"
        for rank, (at, actions) in enumerate(zip(done, schedule.ranks, strict=True))
        if at < len(actions)
    ]
    if waiting:
        raise OnefoldRuntimeError(f"schedule {schedule.name} cannot run: {', '.join(waiting)} wait")
