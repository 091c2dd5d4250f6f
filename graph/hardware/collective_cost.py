"""Costs of collectives: seconds by latency and bandwidth, for groups that span several levels.

`nbytes` is always the whole buffer: what a rank of an all-gather holds in the end, what every rank
of a reduce-scatter or all-reduce holds at first, all that the ranks of an all-to-all hold together.
Sources: Thakur et al., "Optimization of collective communication operations in MPICH" (2005);
Sanders et al., "Two-tree algorithms" (2009); NVIDIA's NCCL (its tuner counts rounds like this).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from .hardware_record import Algorithm, Hardware, Link


@dataclass(frozen=True)
class Span:
    """The extent of a group: the links that it uses, from the closest, with the parts they join.

    `fans[i]` parts are joined by `links[i]`; all are larger than 1.
    """

    links: tuple[Link, ...]
    fans: tuple[int, ...]
    ranks: int

    @property
    def link(self) -> Link:
        """The farthest link."""
        return self.links[-1]

    @cached_property
    def under_protocols(self) -> tuple[Span, ...]:
        """The group under each of the other protocols, one for all of its links."""
        count = max((len(link.protocols) for link in self.links), default=0)
        kinds = (tuple([link.under(kind) for link in self.links]) for kind in range(count))
        return tuple([replace(self, links=links) for links in kinds])

    def units(self, level: int) -> int:
        """The number of parts that the levels below leave to join."""
        return prod(self.fans[level:]) if level else self.ranks

    def narrowest(self, nbytes: float) -> float:
        """Bytes per second of each rank where all ranks of a unit send over their own links."""
        sharing = (prod(self.fans[:level]) for level in range(len(self.fans)))
        return min(
            link.speed(nbytes) * ranks for link, ranks in zip(self.links, sharing, strict=True)
        )


def span(hardware: Hardware, ranks: Sequence[int]) -> Span:
    """The extent of a group of ranks on a machine."""
    pairs = [pair for pair in zip(hardware.links, hardware.fans(ranks), strict=True) if pair[1] > 1]
    return Span(tuple(link for link, _ in pairs), tuple(fan for _, fan in pairs), len(ranks))


def all_reduce(group: Span, nbytes: float) -> float:
    """Seconds until every rank has the sum of the buffers of all."""
    return _fastest(group, nbytes, {"ring": _ring_2, "tree": _tree, "hierarchical": _levels_2})


def all_gather(group: Span, nbytes: float) -> float:
    """Seconds until every rank has the parts of all."""
    return _fastest(group, nbytes, {"ring": _ring, "tree": _ring, "hierarchical": _levels})


reduce_scatter = all_gather  # the same messages the other way round


def all_to_all(group: Span, nbytes: float) -> float:
    """Seconds until every rank has a part of each other's buffer, sent directly."""
    if group.ranks == 1:
        return 0.0
    held = nbytes / group.ranks  # by each rank
    slowest, rounds, near = 0.0, 0.0, 1
    for link, fan in zip(group.links, group.fans, strict=True):
        count = near * (fan - 1)  # ranks that this link reaches and no closer one
        rounds += count * link.latency
        slowest = max(slowest, held / group.ranks * count / link.speed(nbytes))
        near *= fan
    return group.link.launch + rounds + slowest


def message(link: Link, nbytes: float, messages: int = 1) -> float:
    """Seconds of so many messages of one rank to others, of `nbytes` together."""
    return link.launch + messages * link.latency + nbytes / link.speed(nbytes)


def _fastest(
    group: Span, nbytes: float, ways: dict[Algorithm, Callable[[Span, float], float]]
) -> float:
    if group.ranks == 1:
        return 0.0
    return min(
        each.link.launch + ways[algorithm](each, nbytes)
        for each in (group, *group.under_protocols)
        for algorithm in group.link.algorithms
    )


def _ring(group: Span, nbytes: float) -> float:
    """Each rank passes on n - 1 parts; a round takes the time of the farthest link."""
    n = group.ranks
    rounds = [*(group.units(level) - 1 for level in range(len(group.fans))), 0]
    latency = sum(
        (rounds[level] - rounds[level + 1]) * link.latency for level, link in enumerate(group.links)
    )
    return latency + nbytes * (n - 1) / n / group.narrowest(nbytes)


def _ring_2(group: Span, nbytes: float) -> float:
    return 2 * _ring(group, nbytes)


def _tree(group: Span, nbytes: float) -> float:
    """Two binary trees, each for half of the buffer, pipelined: up and down."""
    pairs = zip(group.links, group.fans, strict=True)
    latency = sum((fan - 1).bit_length() * link.latency for link, fan in pairs)
    return 2 * (latency + nbytes / group.narrowest(nbytes))


def _levels(group: Span, nbytes: float) -> float:
    """Level by level: each rank sends its share of the unit's buffer over the farther link."""
    total = 0.0
    for link, fan in zip(group.links, group.fans, strict=True):
        total += (fan - 1) * link.latency + nbytes * (fan - 1) / fan / link.speed(nbytes)
        nbytes /= fan
    return total


def _levels_2(group: Span, nbytes: float) -> float:
    return 2 * _levels(group, nbytes)
