"""Copy schedule: when copies to the host are done, and when those back must begin.

All copies of a device run one after the other, overlapped with its compute. Times are modeled
ones, so that a copy back begins early enough to be there when it is needed, and no earlier.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ...engine.machine import Machine, machine
from ...engine.meta import Meta
from ..ir import ProgramStep
from ..memory_traffic import local_bytes, read_and_written
from ..step_products import products_of
from .pass_utils import time

_UNDER_WAY = 16  # copies of one direction at most, so that few values are in both memories
_LATE = 2  # the same of those that will be waited for


@dataclass(frozen=True, slots=True)
class Copy:
    """A value that is on the host between two steps, by their indices."""

    last: int  # the last step before that needs it
    needed: int  # the first step after that needs it
    seconds: float  # of the copy, either way
    turn: int  # the step before which its memory must be free, such as the first of backward
    apart: bool = False  # whether both copies overlap with other work at this turn


@dataclass(frozen=True, slots=True)
class Turns:
    """The steps before which a copy to the host is waited for, and the copy back begins."""

    released: int
    fetched: int


def schedule(steps: Sequence[float], copies: Sequence[Copy]) -> list[Turns]:
    """Schedule copies, given the seconds of each step.

    >>> schedule([1.0] * 8, [Copy(last=0, needed=7, seconds=2.0, turn=4)])
    [Turns(released=3, fetched=5)]
    """
    begins = [0.0, *accumulate(steps)]
    done, begun = _done(begins, copies), _begun(begins, copies)
    return [
        Turns(released, min(max(fetched, released), copy.needed))
        for copy, released, fetched in zip(copies, done, begun, strict=True)
    ]


def _done(begins: Sequence[float], copies: Sequence[Copy]) -> list[int]:
    """For each copy to the host, the first step at which it is done, and must be."""
    found, few = [0] * len(copies), [0] * len(copies)
    order = sorted(range(len(copies)), key=lambda at: copies[at].last)
    free = 0.0
    for at in order:
        copy = copies[at]
        free = max(free, begins[copy.last + 1]) + copy.seconds
        found[at] = max(min(bisect_left(begins, free), copy.turn), copy.last + 1)
        few[at] = _UNDER_WAY if copy.apart or free <= begins[copy.turn] else _LATE
    latest = len(begins)  # a copy is done when one that begins later is
    for place, at in reversed(list(enumerate(order))):
        if place + few[at] < len(order):
            latest = min(latest, copies[order[place + few[at]]].last + 1)
        latest = found[at] = min(latest, found[at])
    return found


def _begun(begins: Sequence[float], copies: Sequence[Copy]) -> list[int]:
    """For each copy back, the last step at which it can begin to arrive in time."""
    found, few = [0] * len(copies), [0] * len(copies)
    order = sorted(range(len(copies)), key=lambda at: copies[at].needed)
    due = begins[-1]
    for at in reversed(order):
        copy = copies[at]
        due = min(due, begins[copy.needed]) - copy.seconds
        found[at] = bisect_right(begins, max(due, 0.0)) - 1
        if copy.apart:
            found[at] = max(found[at], copy.turn)
        few[at] = _UNDER_WAY if copy.apart or due >= begins[copy.turn] else _LATE
    earliest = 0  # copies begin in the order in which they are needed
    for place, at in enumerate(order):
        if place >= few[at]:
            earliest = max(earliest, copies[order[place - few[at]]].needed)
        earliest = found[at] = max(earliest, found[at])
    return found


def seconds_of(step: ProgramStep) -> float:
    """Modeled seconds of a step on its first rank, by the constants of eager."""
    metas = [value.meta for value in (*step.outputs, *step.reads())]
    if step.aliases or not metas:
        return 0.0
    if step.name == "boxing":
        return time(step.source.meta, step.outputs[0].meta)
    rank, constants = _rank(metas[0]), _machine(metas[0])
    flop = sum(product.flop for product in products_of(step, rank))
    return flop * constants.flop + read_and_written(step, rank) * constants.byte


def copy_seconds(meta: Meta) -> float:
    """Modeled seconds of a value's copy to the host, or back."""
    return local_bytes(meta, _rank(meta)) * _machine(meta).copy


def _machine(meta: Meta) -> Machine:
    """The constants of a value's device; values without data are planned for a GPU."""
    return machine("cpu" if meta.device_type == "cpu" else "cuda")


def _rank(meta: Meta) -> int:
    return 0 if meta.placement is None else meta.placement.flat_ranks[0]
