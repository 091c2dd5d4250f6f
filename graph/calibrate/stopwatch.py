"""Stopwatch: how long a function takes, measured for a part of the time that there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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


def seconds_of(call: Callable[[], object], spend: float) -> float:
    """The usual seconds of a call, from as many as fit into `spend` seconds."""
    call()
    start = time.perf_counter()
    call()
    once = max(time.perf_counter() - start, 1e-9)
    count = max(1, round(_TURN / once))
    times: list[float] = []
    end = time.perf_counter() + spend
    while len(times) < _LEAST or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - start) / count)
    return usual(times)


def usual(times: Sequence[float]) -> float:
    """The lower quartile: what other programs disturb takes longer.

    >>> usual([5.0, 1.0, 9.0, 2.0, 3.0])
    2.0
    """
    return sorted(times)[len(times) // 4]


def fitted(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, Curve]:
    """The highest rate of these sizes, and the share of it that each reaches.

    >>> fitted([10.0, 100.0], [2.0, 10.0])
    (10.0, Curve(points=((10.0, 0.5), (100.0, 1.0))))
    """
    rates = [size / each for size, each in zip(sizes, seconds, strict=True)]
    peak = max(rates)
    return peak, Curve(tuple((size, rate / peak) for size, rate in zip(sizes, rates, strict=True)))
