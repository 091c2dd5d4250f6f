"""Link probes: collectives between two processes as in a step, alone and overlapped with compute.

Each collective follows layers: the ranks do not arrive at once, and their processors have
other work. Where nothing else runs a collective takes a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import TypeAlias

import torch
from torch.nn import functional

from ...distributed import collectives
from ..hardware import Link
from .turns import PAIR, Probe, Repeated, agreed, average, fitted

Begin: TypeAlias = Callable[[], Callable[[], object]]

_BYTES = tuple(4**power for power in range(6, 12))  # of what every rank holds
_SMALL = 64
_ROWS, _WIDTH = 512, 128  # of what the layer before a collective reads: about two milliseconds
_FEW, _MANY = 1, 8  # layers before a collective
_TIMES = 3  # that a collective is timed in a turn
_OVERLAPPED = 5  # layers that run while a collective does
_MOST = 8.0  # times as long: then communication takes nearly all of a processor
_TOLD = 1.2  # times as long as no bytes: else the time of the bytes is lost in the start's


class Exchanged:
    """Layers and then a collective; `overlapped` more layers run until it is waited for."""

    def __init__(self, begin: Begin, before: int = _FEW, overlapped: int = 0) -> None:
        self._begin = begin
        self.before, self._overlapped = before, overlapped
        self._layer = _layer()
        self._started: list[float] = []
        self._taken: list[float] = []

    def turn(self) -> None:
        """Time both a few times, as the other rank does."""
        layer = self._layer
        for _ in range(_TIMES):
            start = perf_counter()
            for _ in range(self.before):
                layer()
            begun = perf_counter()
            end = self._begin()
            self._started.append(perf_counter() - begun)
            for _ in range(self._overlapped):
                layer()
            end()
            self._taken.append(perf_counter() - start)

    @property
    def started(self) -> float:
        """The average seconds until the collective has begun; its rank computes nothing then."""
        return average(self._started)

    @property
    def taken(self) -> float:
        """The average seconds of the layers and the collective together."""
        return average(self._taken)


class LinkProbes:
    """The link between two processes."""

    def __init__(self) -> None:
        part, both = torch.zeros(_SMALL // 8), torch.zeros(_SMALL // 4)
        shapes = [tuple(part.shape)] * len(PAIR)
        self._gather = Exchanged(partial(collectives.begin_all_gather, part, PAIR, shapes))
        self._reduce = Exchanged(_reduction(both))
        self._late = Exchanged(_reduction(torch.zeros(_SMALL // 4)), before=_MANY)
        self._sized = [Exchanged(_reduction(torch.zeros(size // 4))) for size in _BYTES]
        self._layer = Repeated(_layer())
        self._both = Exchanged(_reduction(torch.zeros(_BYTES[-1] // 4)), overlapped=_OVERLAPPED)

    def probes(self) -> list[Probe]:
        """All of them, which are timed in turn."""
        return [self._gather, self._reduce, self._late, *self._sized, self._layer, self._both]

    def link(self) -> Link:
        """The link, from the times of all-gathers and all-reduces.

        With two ranks an all-gather is one round and an all-reduce two, in which a rank receives as
        many bytes as it holds.
        """
        late = self.skew() * _FEW * agreed([self._layer.seconds])[0]
        probes = (self._gather, self._reduce, *self._sized)
        # Noise can make it less than what the host alone needs, which no collective is.
        gather, reduce, *sized = agreed(
            [max(self._added(each) - late, each.started) for each in probes]
        )
        return fitted_link(gather, reduce, sized)

    def launch(self) -> float:
        """The seconds that the host needs to start a collective."""
        (started,) = agreed([self._reduce.started])
        return started

    def skew(self) -> float:
        """The share of the compute before a collective for which a rank waits for the other."""
        waited = self._added(self._late) - self._added(self._reduce)
        computed = (_MANY - _FEW) * self._layer.seconds
        waited, computed = agreed([waited, computed])
        return max(waited / computed, 0.0)

    def contention(self) -> float:
        """How many times as long compute takes while there is communication."""
        alone, both = (self._added(each) - each.started for each in (self._sized[-1], self._both))
        return slowdown(*agreed([alone, _OVERLAPPED * self._layer.seconds, both]))

    def _added(self, probe: Exchanged) -> float:
        """The seconds that a collective adds to the layers before it, which run slower near it."""
        return probe.taken - probe.before * self._layer.seconds


def fitted_link(gather: float, reduce: float, sized: Sequence[float]) -> Link:
    """The link of two ranks, from seconds of a small all-gather and of all-reduces by size.

    >>> fitted_link(3.0, 4.0, [4.0, 5.0, 10.0, 20.0, 60.0, 200.0]).latency
    1.0
    """
    latency = min(max(reduce - gather, 0.0), gather / 2)
    begin = gather - latency
    sizes, seconds = [], []
    for size, each in zip(_BYTES, sized, strict=True):
        start = begin + 2 * latency
        if each > _TOLD * start or size == _BYTES[-1]:
            sizes.append(float(size))
            seconds.append(max(each - start, each / 10))
    bandwidth, efficiency = fitted(sizes, seconds)
    # Two ranks have no further messages in a round: each counts as a round of its own.
    return Link("Gloo", float("inf"), begin, latency, bandwidth, ("ring",), efficiency, latency)


def slowdown(communication: float, compute: float, both: float) -> float:
    """How many times as long compute takes while there is communication, from seconds of each.

    >>> slowdown(1.0, 4.0, 4.5)
    2.0
    """
    hidden = communication + compute - both  # done in the meantime
    return min(max(communication / max(hidden, 1e-9), 1.0), _MOST)


def _layer() -> Callable[[], object]:
    """A network of two layers, which makes and frees memory as a step does."""
    x, up, down = (
        torch.randn(_ROWS, _WIDTH),
        torch.randn(4 * _WIDTH, _WIDTH),
        torch.randn(_WIDTH, 4 * _WIDTH),
    )

    def layer() -> object:
        hidden = functional.gelu(functional.linear(x, up))
        return functional.layer_norm(functional.linear(hidden, down) + x, (_WIDTH,))

    return layer


def _reduction(held: torch.Tensor) -> Begin:
    return partial(collectives.begin_all_reduce, held, PAIR, "sum", inplace=True)
