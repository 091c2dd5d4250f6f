"""Link rates: collectives between two processes by size, and how they slow compute down."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch

from ...distributed import collectives
from ..hardware import Link
from .stopwatch import fitted

PAIR = (0, 1)
_BYTES = tuple(4**power for power in range(6, 12))  # of what every rank holds
_SMALL = 64
_SIDE = 256  # of the matrix products beside a collective
_MOST = 8.0  # times as long: then communication takes nearly all of a processor
_ROUNDS = 5
_TOLD = 1.5  # times as long as no bytes: else the time of the bytes is lost in the start's


def timed(call: Callable[[], object], spend: float) -> float:
    """The usual seconds of a call that both ranks make; the slower rank's, the same on both."""
    call()
    collectives.barrier(PAIR)
    start = time.perf_counter()
    call()
    count = max(_ROUNDS, round(spend / (time.perf_counter() - start)))
    count = int(collectives.all_reduce(torch.tensor(count), PAIR, "min"))
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(collectives.all_reduce(torch.tensor(median(times)), PAIR, "max"))


def agreed(seconds: Sequence[float]) -> list[float]:
    """The mean of what both ranks have measured."""
    both = collectives.all_reduce(torch.tensor(seconds, dtype=torch.float64), PAIR, "sum")
    return (both / len(PAIR)).tolist()


def link(spend: float) -> Link:
    """The link between two processes, from the times of all-gathers and all-reduces.

    With two ranks an all-gather is one round and an all-reduce two, in which a rank receives as
    many bytes as it holds.
    """
    each = spend / (2 + len(_BYTES))
    part = torch.zeros(_SMALL // 8)
    gather = timed(lambda: collectives.all_gather(part, PAIR, [tuple(part.shape)] * 2), each)
    reduce = timed(partial(collectives.all_reduce, torch.zeros(_SMALL // 4), PAIR, "sum"), each)
    latency = min(max(reduce - gather, 0.0), gather / 2)
    begin = gather - latency
    sizes, seconds = [], []
    for nbytes in _BYTES:
        held = torch.zeros(nbytes // 4)
        whole = timed(partial(collectives.all_reduce, held, PAIR, "sum", inplace=True), each)
        start = begin + 2 * latency
        if whole > _TOLD * start or nbytes == _BYTES[-1]:
            sizes.append(float(nbytes))
            seconds.append(max(whole - start, whole / 10))
    bandwidth, efficiency = fitted(sizes, seconds)
    # Two ranks have no further messages in a round: each counts as a round of its own.
    return Link("Gloo", float("inf"), begin, latency, bandwidth, ("ring",), efficiency, latency)


@dataclass(frozen=True)
class Beside:
    """Seconds of a collective, of matrix products, and of both at once."""

    communication: float
    compute: float
    both: float

    @property
    def contention(self) -> float:
        """How many times as long the products took while there was communication.

        >>> Beside(1.0, 4.0, 4.5).contention
        2.0
        """
        hidden = self.communication + self.compute - self.both  # done in the meantime
        return min(max(self.communication / max(hidden, 1e-9), 1.0), _MOST)


def beside(spend: float) -> Beside:
    """A collective and matrix products, first alone and then at once."""
    held = torch.zeros(_BYTES[-1] // 4)
    a, b = torch.randn(_SIDE, _SIDE), torch.randn(_SIDE, _SIDE)
    reduce = partial(collectives.begin_all_reduce, held, PAIR, "sum", inplace=True)

    def communicate() -> None:
        end = reduce()
        end()

    communication = timed(communicate, spend / 3)
    once = timed(partial(torch.mm, a, b), spend / 10)
    count = max(1, round(2 * communication / once))

    def compute() -> None:
        for _ in range(count):
            torch.mm(a, b)

    def both() -> None:
        end = reduce()
        compute()
        end()

    return Beside(communication, timed(compute, spend / 3), timed(both, spend / 3))
