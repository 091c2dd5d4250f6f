"""Turns: probes are timed in turn, so that what else the machine does slows all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Protocol

import torch

from ...distributed import collectives
from ...errors import OnefoldRuntimeError
from ..hardware import Curve

PAIR = (0, 1)  # the ranks that measure
_TURN = 1e-3  # of the calls of a probe in one turn
_WARM_UP = 3  # calls
_LEAST = 3  # turns


class Probe(Protocol):
    """A measurement that is taken once in every turn."""

    def turn(self) -> None:
        """Measure once more."""


class Repeated:
    """A call of one rank alone, as often in a turn as fills so many seconds."""

    def __init__(self, call: Callable[[], object], seconds: float = _TURN) -> None:
        for _ in range(_WARM_UP):
            call()
        start = time.perf_counter()
        call()
        self._call = call
        self._count = max(1, round(seconds / max(time.perf_counter() - start, 1e-9)))
        self._taken: list[float] = []

    def turn(self) -> None:
        """Time the calls of one turn."""
        call = self._call
        call()  # after what other probes have done
        start = time.perf_counter()
        for _ in range(self._count):
            call()
        self._taken.append((time.perf_counter() - start) / self._count)

    @property
    def seconds(self) -> float:
        """The usual seconds of a call."""
        return usual(self._taken)


@dataclass
class Budget:
    """The time limit of a calibration."""

    seconds: float
    begun: float = field(default_factory=time.perf_counter)

    @property
    def share(self) -> float:
        """The share of the time that has passed; 1 for all of it."""
        return (time.perf_counter() - self.begun) / self.seconds if self.seconds > 0 else 1.0


def take(probes: Sequence[Probe], budget: Budget, report: Callable[[float], None]) -> None:
    """Take turns until the time is over; both ranks call it.

    `report` is called with the share of the time after each turn. Raises OnefoldRuntimeError where
    the time is not enough for three turns.
    """
    turns, share = 0, 0.0
    while share < 1.0:
        turn(probes)
        turns += 1
        (share,) = agreed([budget.share])
        report(min(share, 1.0))
    if turns < _LEAST:
        raise OnefoldRuntimeError(
            f"the calibration made {turns} of at least {_LEAST} turns in {budget.seconds:g} "
            "seconds; run it when nothing else runs on this machine, or give it more with --seconds"
        )


def turn(probes: Iterable[Probe]) -> None:
    """Time each probe once, on both ranks at the same time."""
    for probe in probes:
        collectives.barrier(PAIR)
        probe.turn()


def agreed(seconds: Sequence[float]) -> list[float]:
    """The mean of what both ranks have measured."""
    both = collectives.all_reduce(torch.tensor(seconds, dtype=torch.float64), PAIR, "sum")
    return (both / len(PAIR)).tolist()


def usual(values: Sequence[float]) -> float:
    """The mean of the middle half, which a few disturbed values do not move.

    >>> usual([1.0, 2.0, 3.0, 1000.0])
    2.5
    """
    ordered, outer = sorted(values), len(values) // 4
    return mean(ordered[outer : len(ordered) - outer])


def average(values: Sequence[float]) -> float:
    """The mean without the highest of every fifty: what many of such values take together.

    >>> average([1.0, 2.0, 6.0])
    3.0
    """
    return mean(sorted(values)[: len(values) - len(values) // 50])


def fitted(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, Curve]:
    """The highest rate of these sizes, and the share of it that each reaches.

    >>> fitted([10.0, 100.0], [2.0, 10.0])
    (10.0, Curve(points=((10.0, 0.5), (100.0, 1.0))))
    """
    rates = [size / each for size, each in zip(sizes, seconds, strict=True)]
    peak = max(rates)
    return peak, Curve(tuple((size, rate / peak) for size, rate in zip(sizes, rates, strict=True)))
