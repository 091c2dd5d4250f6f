"""Checks a schedule: complete, in order, free of deadlock, and as good as its closed forms.

The closed forms hold for stages in a row and free transfers. They are in the table of schedules,
and give the bubble of a schedule and its number of micro-batches in flight.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import OnefoldRuntimeError
from .action_order import advance
from .actions import KINDS, Action, Schedule
from .named_schedules import schedule_named
from .simulate import Times, simulate


def check(schedule: Schedule, edges: Sequence[tuple[int, int]] | None = None) -> None:
    """Raise OnefoldRuntimeError for a schedule with an error, which it names."""
    _complete(schedule)
    advance(schedule, edges)


def _complete(schedule: Schedule) -> None:
    """Each stage does F, and B or I and W, exactly once per micro-batch, on its own rank.

    Micro-batches come in order, since sums and buffers depend on it. Where no rank does anything
    backward, F alone.
    """
    found: set[Action] = set()
    newest: dict[tuple[str, int], int] = {}
    for rank, actions in enumerate(schedule.ranks):
        for action in actions:
            stage, micro = action.stage, action.micro_batch
            if not (0 <= stage < schedule.stages and 0 <= micro < schedule.micro_batches):
                raise _wrong(schedule, f"{action} on rank {rank} is of no stage or micro-batch")
            home = schedule.rank_of[stage]
            if home != rank:
                text = f"{action} is on rank {rank}, but its stage lives on rank {home}"
                raise _wrong(schedule, text)
            if action in found:
                raise _wrong(schedule, f"{action} is done more than once")
            found.add(action)
            before = newest.get((action.kind, stage), -1)
            if micro < before:
                raise _wrong(schedule, f"{action} comes after micro-batch {before} of its stage")
            newest[action.kind, stage] = micro
    forward_alone = all(action.kind == "F" for action in found)
    for stage in range(schedule.stages):
        for micro in range(schedule.micro_batches):
            done = {kind for kind in KINDS if Action(kind, stage, micro) in found}
            if forward_alone and done == {"F"}:
                continue
            if done not in ({"F", "B"}, {"F", "I", "W"}):
                text = f"stage {stage} does {sorted(done)} for micro-batch {micro}; it must do F "
                raise _wrong(schedule, text + "and B, or F, I and W")


def _wrong(schedule: Schedule, text: str) -> OnefoldRuntimeError:
    return OnefoldRuntimeError(f"schedule {schedule.name} is wrong: {text}")


def in_flight(schedule: Schedule, rank: int, end: str = "I") -> int:
    """The most (stage, micro-batch) pairs that a rank holds at once, from F to the action `end`.

    `end` "I" counts what the input's gradient still needs, "W" what anything still needs; a B
    ends both.
    """
    now = most = 0
    for action in schedule.ranks[rank]:
        if action.kind == "F":
            now += 1
            most = max(most, now)
        elif action.kind in ("B", end):
            now -= 1
    return most


def bubble(schedule: Schedule, times: Times) -> float | None:
    """The idle time of the busiest rank by its closed form; None where no form is known.

    Raises OnefoldValueError for a schedule of an unknown name, which may have any form.

    >>> from onefold.graph.schedules.named_schedules import make
    >>> bubble(make("1f1b", stages=4, micro_batches=8), Times())
    9.0
    """
    return schedule_named(schedule.name).bubble(*_numbers(schedule), times)


def held(schedule: Schedule, rank: int) -> int | None:
    """The most micro-batches of its stages that a rank holds from F to B or I; None: no form.

    Raises OnefoldValueError for a schedule of an unknown name.

    >>> from onefold.graph.schedules.named_schedules import make
    >>> held(make("1f1b", stages=4, micro_batches=8), 0)
    4
    """
    return schedule_named(schedule.name).held(rank, *_numbers(schedule))


def check_forms(schedule: Schedule) -> None:
    """Raise OnefoldRuntimeError unless a schedule has the bubble and holds what it should."""
    wanted = bubble(schedule, Times())
    found = simulate(schedule, Times()).bubble
    if wanted is not None and abs(found - wanted) > 1e-9:
        raise _wrong(schedule, f"its bubble is {found:g} and should be {wanted:g}")
    for rank in range(len(schedule.ranks)):
        most, now = held(schedule, rank), in_flight(schedule, rank)
        if most is not None and now != most:
            text = f"rank {rank} holds {now} micro-batches at once and should hold {most}"
            raise _wrong(schedule, text)


def _numbers(schedule: Schedule) -> tuple[int, int, int]:
    """Ranks, stages of each, and micro-batches."""
    ranks = len(schedule.ranks)
    return ranks, schedule.stages // ranks, schedule.micro_batches
