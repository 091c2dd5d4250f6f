"""Closed forms: the bubble of a schedule and its number of micro-batches in flight.

For stages in a row and free transfers. The forms are in the table of schedules.
"""

from __future__ import annotations

from ...errors import OnefoldRuntimeError
from .actions import Schedule
from .named_schedules import schedule_named
from .schedule_check import in_flight
from .simulate import Times, simulate


def bubble(schedule: Schedule, times: Times) -> float | None:
    """The time in which the busiest rank has nothing to do; None where no form is known.

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
        raise OnefoldRuntimeError(
            f"schedule {schedule.name} is wrong: its bubble is {found:g} and should be {wanted:g}"
        )
    for rank in range(len(schedule.ranks)):
        most = held(schedule, rank)
        if most is not None and in_flight(schedule, rank) != most:
            raise OnefoldRuntimeError(
                f"schedule {schedule.name} is wrong: rank {rank} holds "
                f"{in_flight(schedule, rank)} micro-batches at once and should hold {most}"
            )


def _numbers(schedule: Schedule) -> tuple[int, int, int]:
    """Ranks, stages of each, and micro-batches."""
    ranks = len(schedule.ranks)
    return ranks, schedule.stages // ranks, schedule.micro_batches
