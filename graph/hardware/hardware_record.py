"""Hardware: the record of one type of machine, with all constants that times are computed from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log
from typing import Literal, NamedTuple, TypeAlias

import torch

Algorithm: TypeAlias = Literal["ring", "tree", "hierarchical"]
ALGORITHMS: tuple[Algorithm, ...] = ("ring", "tree", "hierarchical")


@dataclass(frozen=True, slots=True)
class Curve:
    """The share of a peak that is reached, by size: `points` are (size, share), sizes going up.

    Between two points the logarithm of the share is linear in that of the size, so that more takes
    longer wherever it does at the points. Outside them the share is that of the nearest point.

    >>> Curve(((1e3, 0.2), (1e5, 0.8))).at(1e4)
    0.4
    """

    points: tuple[tuple[float, float], ...]

    def at(self, size: float) -> float:
        """The share for one size."""
        above = bisect_right(self.points, (size, inf))
        if above in (0, len(self.points)):
            return self.points[max(above - 1, 0)][1]
        (low, before), (high, after) = self.points[above - 1], self.points[above]
        part = log(size / low) / log(high / low)
        return float(before * (after / before) ** part)


class Protocol(NamedTuple):
    """A protocol with lower latency and a part of the bandwidth."""

    launch: float  # seconds of each collective
    latency: float  # seconds of each round
    share: float  # of the bandwidth


@dataclass(frozen=True, slots=True)
class Link:
    """One level of links, such as NVLink inside a machine, which joins `ranks` consecutive ranks.

    `bandwidth` is in bytes per second that a rank receives while it sends as many, and `efficiency`
    its share by the bytes of a message or collective. Of `protocols` and what the link says itself,
    a collective takes what is fastest.
    """

    name: str
    ranks: float  # infinite at the last level
    launch: float  # seconds of each message or collective, whatever its size
    latency: float  # seconds of each round in which ranks send one message
    bandwidth: float
    algorithms: tuple[Algorithm, ...]  # of collectives; the fastest of them is taken
    efficiency: Curve
    message: float = 0.0  # seconds of each further message in one round of different ones
    protocols: tuple[Protocol, ...] = ()

    def under(self, protocol: int) -> Link:
        """The link under one of its protocols; the link itself if it has fewer."""
        if protocol >= len(self.protocols):
            return self
        launch, latency, share = self.protocols[protocol]
        bandwidth = self.bandwidth * share
        return replace(self, launch=launch, latency=latency, bandwidth=bandwidth)

    def speed(self, nbytes: float) -> float:
        """Bytes per second of a message or collective of so many bytes."""
        return self.bandwidth * self.efficiency.at(nbytes)


@dataclass(frozen=True, slots=True)
class Hardware:
    """One type of machine. Times are in seconds, sizes in bytes, `peak` in flop/s by dtype."""

    name: str
    peak: Mapping[torch.dtype, float]  # of matrix products; other dtypes count as float32
    memory_bytes: int  # of each rank's device
    memory_bandwidth: float
    launch: float  # of one op
    launches_ahead: bool  # whether ops are launched while the device works on earlier ones
    contention: float  # how many times as long ops take while their rank communicates
    matmul: Curve  # share of `peak`, by flop
    attention: Curve  # the same for fused attention, by the flop that are done: causal, half of all
    memory: Curve  # share of the memory's bandwidth, by bytes read and written
    links: tuple[Link, ...]  # from the closest ranks to the farthest
    collective_launch: float = 0.0  # of the host, to begin a message or collective
    # Of the compute between two collectives, what a rank waits for slower ranks in the second.
    skew: float = 0.0
    narrow: float = 0.0  # a product with a dim of this length takes twice as long as its flop say
    context_bytes: int = 0  # of the device's memory, for its driver, kernels and libraries
    communicator_bytes: int = 0  # the same for each group of ranks that communicates
    host_bandwidth: float = inf  # bytes per second between a device and its host
    host_bytes: int | None = None  # of the host's memory, for each device; None: as the device's
    # How many times as long ops take as their bytes and flop say, by name; 1 for all others.
    ops: Mapping[str, float] = field(default_factory=dict)

    def flops(self, dtype: torch.dtype) -> float:
        """Flop/s of matrix products at best."""
        return self.peak.get(dtype, self.peak[torch.float32])

    def level(self, one: int, other: int) -> Link:
        """The link between two ranks."""
        return next(link for link in self.links if one // link.ranks == other // link.ranks)

    def fans(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """The extent of a group: for each level, the most parts that one of its units joins.

        8 ranks on each of 4 machines are (8, 4). The product is the size of the group where all
        units are alike.
        """
        parts: set[int] = set(ranks)
        found, size = [], 1.0
        for link in self.links:
            units: dict[int, int] = {}
            for part in parts:
                unit = 0 if link.ranks == inf else int(part // (link.ranks / size))
                units[unit] = units.get(unit, 0) + 1
            found.append(max(units.values()))
            parts, size = set(units), link.ranks
        return tuple(found)

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.memory_bytes / 2**30:.0f} GiB, "
            f"{self.memory_bandwidth / 1e9:,.0f} GB/s",
            *(f"  {_short(kind)}: {rate / 1e12:,.1f} Tflop/s" for kind, rate in self.peak.items()),
        ]
        for link in self.links:
            reach = "all ranks" if link.ranks == inf else f"{link.ranks:.0f} ranks"
            lines.append(f"  {link.name}, {reach}: {link.bandwidth / 1e9:,.1f} GB/s")
        return "\n".join(lines)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
