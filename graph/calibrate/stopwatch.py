"""Stopwatch: how long a function takes, measured for a part of the time that there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from ...errors import OnefoldRuntimeError
from ..hardware import Curve

_LEAST = 3  # calls that are timed
_TURN = 1e-3  # seconds of each timed batch of calls, at least


@dataclass
class Budget:
    """The seconds that a calibration may take, and what is left of them."""

    seconds: float
    begun: float = field(default_factory=time.perf_counter)

    @property
    def left(self) -> float:
        return self.seconds - (time.perf_counter() - self.begun)

    def check(self) -> None:
        """Raise OnefoldRuntimeError when the time is over."""
        if self.left <= 0:
            raise OnefoldRuntimeError(
                f"the calibration did not end in {self.seconds:g} seconds; run it when nothing "
                "else runs on this machine, or give it more with --seconds"
            )


def seconds_of_each(calls: Sequence[Callable[[], object]], spend: float) -> list[float]:
    """The usual seconds of each call, from as many turns of all as fit into `spend` seconds.

    They take turns, so that what else the machine does slows all of them alike.
    """
    counts = []
    for call in calls:
        call()
        start = time.perf_counter()
        call()
        counts.append(max(1, round(_TURN / max(time.perf_counter() - start, 1e-9))))
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + spend
    while len(times[0]) < _LEAST or time.perf_counter() < end:
        for call, count, found in zip(calls, counts, times, strict=True):
            start = time.perf_counter()
            for _ in range(count):
                call()
            found.append((time.perf_counter() - start) / count)
    return list(map(median, times))


def seconds_of(call: Callable[[], object], spend: float) -> float:
    """The same of one call."""
    (found,) = seconds_of_each([call], spend)
    return found


def fitted(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, Curve]:
    """The highest rate of these sizes, and the share of it that each reaches.

    >>> fitted([10.0, 100.0], [2.0, 10.0])
    (10.0, Curve(points=((10.0, 0.5), (100.0, 1.0))))
    """
    rates = [size / each for size, each in zip(sizes, seconds, strict=True)]
    peak = max(rates)
    return peak, Curve(tuple((size, rate / peak) for size, rate in zip(sizes, rates, strict=True)))
