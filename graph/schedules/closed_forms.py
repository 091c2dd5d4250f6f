"""Closed forms: the bubble of a schedule and its number of micro-batches in flight.

For p ranks with v stages each and m micro-batches, with free transfers. Sources: Huang et al.
(2019), Narayanan et al. (2019, 2021), Qi et al. (2023, 2024).
"""

from __future__ import annotations

from ...errors import OnefoldRuntimeError
from .actions import Schedule
from .named_schedules import check_known
from .schedule_check import in_flight
from .simulate import Times, simulate


def bubble(schedule: Schedule, times: Times) -> float | None:
    """The time in which the busiest rank has nothing to do; None where no form is known.

    Raises OnefoldValueError for a schedule of an unknown name, which may have any form.

    >>> from onefold.graph.schedules.named_schedules import make
    >>> bubble(make("1f1b", stages=4, micro_batches=8), Times())
    9.0
    """
    check_known(schedule.name)
    p, m, v = _numbers(schedule)
    f, i, w = times.forward, times.input_gradient, times.weight_gradient
    if schedule.name in ("gpipe", "1f1b") or (schedule.name == "interleaved" and v == 1):
        return (p - 1) * (f + i + w)
    if schedule.name == "interleaved":
        return (p - 1) * (f + i + w) if m % p == 0 else None
    if m < 2 * p - 1:
        return None
    if schedule.name == "zb-h1":
        return (p - 1) * (f + i - w)
    if schedule.name == "zb-h2":
        return (p - 1) * (f + i - 2 * w)
    assert schedule.name == "zb-v"
    return 0.0 if f == i == w else None


def held(schedule: Schedule, rank: int) -> int | None:
    """The most micro-batches of its stages that a rank holds from F to B or I; None: no form.

    Raises OnefoldValueError for a schedule of an unknown name.

    >>> from onefold.graph.schedules.named_schedules import make
    >>> held(make("1f1b", stages=4, micro_batches=8), 0)
    4
    """
    check_known(schedule.name)
    p, m, v = _numbers(schedule)
    after = p - 1 - rank
    if schedule.name == "gpipe":
        return m
    if schedule.name in ("1f1b", "zb-h1") or (schedule.name == "interleaved" and v == 1):
        return min(m, after + 1)
    if schedule.name == "zb-h2":
        return min(m, 2 * after + 1)
    if schedule.name == "interleaved" and m % p == 0:
        return min(m * v, 2 * after + (v - 1) * p + 1)
    return None


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
    ranks = len(schedule.ranks)
    return ranks, schedule.micro_batches, schedule.stages // ranks
