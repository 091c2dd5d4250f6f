"""The steps of boxing plans, as data. All their properties follow from arithmetic on boxes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import numpy as np

from ..machine import Link, machine
from ..meta import Box, Meta, balanced
from ..placement import Placement
from ..sbp import short
from . import comm_cost
from .boxes import intersect, volume

# Plans of larger meshes are priced by what their first rank does.
_EXACT_TIME_RANKS = 64


@dataclass(frozen=True, slots=True)
class Collective:
    """What one group of ranks does together, in elements per rank."""

    ranks: tuple[int, ...]
    received: dict[int, int]
    sent: dict[int, int]


@dataclass(frozen=True, eq=False)
class BoxingStep:
    """One step from the layout `before` to the layout `after`, along `axes` of the placement."""

    kind: ClassVar[str] = ""
    local: ClassVar[bool] = False  # whether no rank sends anything
    new_memory: ClassVar[bool] = False  # whether no shard after the step is one from before it
    before: Meta
    after: Meta
    axes: tuple[int, ...] = ()
    memo: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def placement(self) -> Placement:
        return self.before.global_placement

    @property
    def target(self) -> Placement:
        """The placement after the step."""
        return self.after.global_placement

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks that take part, in mesh order."""
        return self.placement.flat_ranks

    def group(self, rank: int) -> tuple[int, ...]:
        """The ranks that communicate with `rank` in this step, itself included, in order."""
        flat = self.placement.flat_ranks
        positions = self.placement.group(self.placement.position[rank], self.axes)
        return tuple(flat[position] for position in positions)

    def groups(self) -> tuple[tuple[int, ...], ...]:
        """All distinct groups of ranks that communicate, each ordered."""
        if self.local:
            return ()
        seen: dict[int, tuple[int, ...]] = {}
        for rank in self.ranks:
            if rank not in seen:
                seen.update(dict.fromkeys(group := self.group(rank), group))
        return tuple(dict.fromkeys(seen.values()))

    def held(self, rank: int) -> Box:
        """The box of the rank's shard before the step."""
        return self.before.box(self.placement.position[rank])

    def made(self, rank: int) -> Box:
        """The box of the rank's shard after the step."""
        return self.after.box(self.target.position[rank])

    def traffic(self, rank: int) -> tuple[int, int]:
        """(elements received, elements sent) by one rank."""
        return 0, 0

    def collectives(self) -> tuple[Collective, ...]:
        """The collective of each group, for the communication log."""
        found = []
        for group in self.groups():
            received, sent = zip(*map(self.traffic, group), strict=True)
            by_rank = [dict(zip(group, counts, strict=True)) for counts in (received, sent)]
            found.append(Collective(group, *by_rank))
        return tuple(found)

    def received(self, rank: int) -> int:
        """Bytes that a rank receives from others."""
        return self.traffic(rank)[0] * self.before.dtype.itemsize

    def sent(self, rank: int) -> int:
        """Bytes that a rank sends to others."""
        return self.traffic(rank)[1] * self.before.dtype.itemsize

    @property
    def link(self) -> Link:
        return machine(self.placement.device_type).link

    @property
    def time(self) -> float:
        """Modeled seconds."""
        raise NotImplementedError

    @property
    def aliases(self) -> bool:
        """Whether a shard after the step may share memory with one before it."""
        return not self.new_memory and (self.local or self.reduction is None)

    @property
    def reduction(self) -> str | None:
        """The reduction of addends in this step: "sum", "max", "min", or None."""
        sbps = [self.before.nd_sbp[axis] for axis in self.axes]
        return next((sbp.reduction for sbp in sbps if sbp.is_partial), None)


class Local(BoxingStep):
    """No communication: every rank slices its shard or fills the rest of it with an identity."""

    kind = "local"
    local = True

    @cached_property
    def fill(self) -> str | None:
        """The reduction whose identity fills what a rank does not hold; None for slices."""
        pairs = zip(self.before.nd_sbp, self.after.nd_sbp, strict=True)
        return next(
            (new.reduction for old, new in pairs if new.is_partial and new is not old), None
        )

    def keeps(self, rank: int) -> Box | None:
        """The region that the rank keeps; None when all of its shard becomes the identity.

        A replicated value becomes a partial sum by staying on coordinate 0; as one of several
        equal values it is a partial maximum or minimum already.
        """
        coordinate = self.placement.coordinate(self.placement.position[rank])
        for old, new, index in zip(self.before.nd_sbp, self.after.nd_sbp, coordinate, strict=True):
            if index and old.is_broadcast and new.kind == "P":
                return None
        return intersect(self.held(rank), self.made(rank))

    @property
    def time(self) -> float:
        return comm_cost.LOCAL_EPSILON


class AllReduce(BoxingStep):
    """Partial values of a group are reduced; every rank of it gets the result."""

    kind = "all_reduce"

    def traffic(self, rank: int) -> tuple[int, int]:
        group, size = self.group(rank), volume(self.held(rank))
        chunk = balanced(size, len(group), group.index(rank))[1]
        moved = chunk * (len(group) - 1) + size - chunk
        return moved, moved

    @property
    def time(self) -> float:
        nbytes = volume(self.held(self.ranks[0])) * self.before.dtype.itemsize
        return comm_cost.all_reduce(self.link, len(self.group(self.ranks[0])), nbytes)


class AllGather(BoxingStep):
    """The shards of a group are concatenated; every rank of it gets the result."""

    kind = "all_gather"
    new_memory = True

    def traffic(self, rank: int) -> tuple[int, int]:
        own = volume(self.held(rank))
        return volume(self.made(rank)) - own, own * (len(self.group(rank)) - 1)

    @property
    def time(self) -> float:
        group = self.group(self.ranks[0])
        return comm_cost.all_gather(self.link, len(group), self.received(group[-1]))


class Exchange(BoxingStep):
    """Each rank of a group gets from each other exactly the region it needs; partials are summed.

    A group is ordered so that the addends of one region are neighbors.
    """

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "reduce_scatter" if self.addends == len(self.group(self.ranks[0])) else "all_to_all"

    @cached_property
    def addends(self) -> int:
        """How many addends are summed for each element."""
        partial = [axis for axis in self.axes if self.before.nd_sbp[axis].is_partial]
        return prod(self.placement.shape[axis] for axis in partial)

    def group(self, rank: int) -> tuple[int, ...]:
        flat, nd_sbp = self.placement.flat_ranks, self.before.nd_sbp
        axes = sorted(self.axes, key=lambda axis: nd_sbp[axis].is_partial)  # stable
        positions = self.placement.group(self.placement.position[rank], axes)
        return tuple(flat[position] for position in positions)

    def region(self, source: int, target: int) -> Box:
        """What goes from one rank of a group to another (or stays, when they are the same)."""
        key = source, target
        found: Box | None = self.memo.get(key)
        if found is None:
            found = self.memo[key] = intersect(self.held(source), self.made(target))
        return found

    def traffic(self, rank: int) -> tuple[int, int]:
        others = [other for other in self.group(rank) if other != rank]
        return (
            sum(volume(self.region(other, rank)) for other in others),
            sum(volume(self.region(rank, other)) for other in others),
        )

    def _busiest(self) -> int:
        """The most elements that any rank receives or sends, of all groups at once."""
        groups = np.array([[self.placement.position[r] for r in group] for group in self.groups()])
        held, made = (
            np.array([meta.box(position) for position in range(len(self.ranks))], np.int64)[groups]
            for meta in (self.before, self.after)
        )  # group, member, offset or size, dim
        starts = np.maximum(held[:, :, None, 0], made[:, None, :, 0])
        ends = np.minimum(held.sum(2)[:, :, None], made.sum(2)[:, None, :])
        moved = (ends - starts).clip(0).prod(-1)  # group, source, target
        own = range(groups.shape[1])
        moved[:, own, own] = 0
        return int(max(moved.sum(1).max(), moved.sum(2).max()))

    @property
    def time(self) -> float:
        exact = len(self.ranks) <= _EXACT_TIME_RANKS
        busiest = self._busiest() if exact else max(self.traffic(self.ranks[0]))
        nbytes = busiest * self.before.dtype.itemsize
        return comm_cost.exchange(self.link, len(self.group(self.ranks[0])) - 1, nbytes)


class Copy(BoxingStep):
    """Every rank moves its shard to another device type."""

    kind = "copy"
    local = True
    new_memory = True

    @property
    def time(self) -> float:
        nbytes = volume(self.held(self.ranks[0])) * self.before.dtype.itemsize
        return comm_cost.LOCAL_EPSILON + nbytes * machine("cuda").copy


def title(step: BoxingStep) -> str:
    """The layouts before and after a step, for tables."""
    return f"{short(step.before.nd_sbp)} -> {short(step.after.nd_sbp)}"
