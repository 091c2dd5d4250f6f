"""Copy schedule: when copies to the host are done, and when those back must begin.

All copies of a device go one after the other, beside its computing. Times are modelled ones, so
that a copy back begins early enough to be there when it is needed, and no earlier.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ...engine.machine import machine
from ...engine.meta import Meta
from ..ir import ProgramStep
from ..memory_traffic import local_bytes, read_and_written
from ..step_products import products_of
from .pass_utils import time

_UNDER_WAY = 16  # copies of one direction at most, so that few values are in both memories


@dataclass(frozen=True, slots=True)
class Copy:
    """A value that is on the host between two steps, by their indices."""

    last: int  # the last step before that needs it
    needed: int  # the first step after that needs it
    seconds: float  # of the copy, either way


@dataclass(frozen=True, slots=True)
class Turns:
    """The steps before which a copy to the host is waited for, and the copy back begins."""

    released: int
    fetched: int


def schedule(steps: Sequence[float], copies: Sequence[Copy]) -> list[Turns | None]:
    """When copies take their turns, by the seconds of each step; None: it gains nothing.

    >>> schedule([1.0] * 8, [Copy(last=0, needed=7, seconds=2.0)])
    [Turns(released=3, fetched=5)]
    """
    begins = [0.0, *accumulate(steps)]
    done: dict[int, int] = {}
    free = 0.0
    out = sorted(range(len(copies)), key=lambda at: copies[at].last)
    for at in out:
        free = max(free, begins[copies[at].last + 1]) + copies[at].seconds
        done[at] = bisect_left(begins, free)
    for at, later in zip(out, out[_UNDER_WAY:], strict=False):
        done[at] = min(done[at], copies[later].last + 1)
    first: dict[int, int] = {}
    back = sorted(range(len(copies)), key=lambda at: copies[at].needed)
    due = begins[-1]
    for at in reversed(back):
        due = min(due, begins[copies[at].needed]) - copies[at].seconds
        first[at] = bisect_right(begins, max(due, 0.0)) - 1
    for earlier, at in zip(back, back[_UNDER_WAY:], strict=False):
        first[at] = max(first[at], copies[earlier].needed)
    found: list[Turns | None] = []
    for at, copy in enumerate(copies):
        released = max(done[at], copy.last + 1)
        fetched = min(max(first[at], released), copy.needed)
        found.append(Turns(released, fetched) if released < copy.needed else None)
    return found


def seconds_of(step: ProgramStep) -> float:
    """Modelled seconds of a step on its first rank, by the constants of eager."""
    metas = [value.meta for value in (*step.outputs, *step.reads())]
    if step.aliases or not metas:
        return 0.0
    if step.name == "boxing":
        return time(step.source.meta, step.outputs[0].meta)
    rank, constants = _rank(metas[0]), machine(metas[0].device_type)
    flop = sum(product.flop for product in products_of(step, rank))
    return flop * constants.flop + read_and_written(step, rank) * constants.byte


def copy_seconds(meta: Meta) -> float:
    """Modelled seconds of a value's copy to the host, or back."""
    return local_bytes(meta, _rank(meta)) * machine(meta.device_type).copy


def _rank(meta: Meta) -> int:
    return 0 if meta.placement is None else meta.placement.flat_ranks[0]
