"""Steps: the data that a boxing plan is made of; everything about them is arithmetic on boxes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from ..meta import Box, Meta, balanced
from ..placement import Placement
from ..sbp import short
from . import cost
from .boxes import intersect, volume
from .route import Held, Move, Needed, Part, assign, gather_moves, spread_moves

# Plans of larger meshes are priced by what their first rank does.
_EXACT_TIME_RANKS = 64


@dataclass(frozen=True, eq=False)
class Step:
    """One step from the layout `before` to the layout `after`, along `axes` of the placement."""

    kind: ClassVar[str] = ""
    before: Meta
    after: Meta
    axes: tuple[int, ...] = ()
    _memo: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def placement(self) -> Placement:
        assert self.before.placement is not None
        return self.before.placement

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
        """All groups of ranks, each ordered, none twice."""
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
        assert self.after.placement is not None
        return self.after.box(self.after.placement.position[rank])

    def traffic(self, rank: int) -> tuple[int, int]:
        """(elements received, elements sent) by one rank."""
        return 0, 0

    def received(self, rank: int) -> int:
        """Bytes that a rank receives from others."""
        return self.traffic(rank)[0] * self.before.dtype.itemsize

    def sent(self, rank: int) -> int:
        """Bytes that a rank sends to others."""
        return self.traffic(rank)[1] * self.before.dtype.itemsize

    @property
    def link(self) -> cost.Link:
        return cost.LINKS[self.placement.device_type]

    @property
    def time(self) -> float:
        """Modelled seconds."""
        raise NotImplementedError

    @property
    def reduction(self) -> str | None:
        """What joins addends in this step: "sum", "max", "min", or None."""
        for axis in self.axes:
            if self.before.nd_sbp[axis].is_partial:
                return self.before.nd_sbp[axis].reduction
        return None


class Local(Step):
    """No communication: every rank slices its shard or fills the rest of it with an identity."""

    kind = "local"

    @cached_property
    def fill(self) -> str | None:
        """The reduction whose identity stands where a rank holds nothing; None for slices."""
        for old, new in zip(self.before.nd_sbp, self.after.nd_sbp, strict=True):
            if new.is_partial and new is not old:
                return new.reduction
        return None

    def keeps(self, rank: int) -> Box | None:
        """The region that the rank keeps; None when all of its shard becomes the identity.

        A replicated value becomes a partial sum by staying on coordinate 0; as one of several
        equal values it is a partial maximum or minimum already.
        """
        coordinate = self.placement.coordinate(self.placement.position[rank])
        for old, new, index in zip(
            self.before.nd_sbp, self.after.nd_sbp, coordinate, strict=True
        ):
            if index and old.is_broadcast and new.kind == "P":
                return None
        return intersect(self.held(rank), self.made(rank))

    @property
    def time(self) -> float:
        return cost.LOCAL_EPSILON


class AllReduce(Step):
    """Partial values of a group are joined; every rank of it gets the result."""

    kind = "all_reduce"

    def traffic(self, rank: int) -> tuple[int, int]:
        group, size = self.group(rank), volume(self.held(rank))
        chunk = balanced(size, len(group), group.index(rank))[1]
        moved = chunk * (len(group) - 1) + size - chunk
        return moved, moved

    @property
    def time(self) -> float:
        nbytes = volume(self.held(self.ranks[0])) * self.before.dtype.itemsize
        return cost.all_reduce(self.link, len(self.group(self.ranks[0])), nbytes)


class AllGather(Step):
    """The shards of a group are joined; every rank of it gets all of them."""

    kind = "all_gather"

    def traffic(self, rank: int) -> tuple[int, int]:
        own = volume(self.held(rank))
        return volume(self.made(rank)) - own, own * (len(self.group(rank)) - 1)

    @property
    def time(self) -> float:
        group = self.group(self.ranks[0])
        return cost.all_gather(self.link, len(group), self.received(group[-1]))


class Exchange(Step):
    """Each rank of a group gets from each other exactly the region it needs; partials are summed.

    A group is ordered so that the addends of one region are neighbours.
    """

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "reduce_scatter" if self.addends == len(self.group(self.ranks[0])) else "all_to_all"

    @cached_property
    def addends(self) -> int:
        """How many addends are summed for each element."""
        found = 1
        for axis in self.axes:
            if self.before.nd_sbp[axis].is_partial:
                found *= self.placement.shape[axis]
        return found

    def group(self, rank: int) -> tuple[int, ...]:
        flat, nd_sbp = self.placement.flat_ranks, self.before.nd_sbp
        axes = sorted(self.axes, key=lambda axis: nd_sbp[axis].is_partial)  # stable
        positions = self.placement.group(self.placement.position[rank], axes)
        return tuple(flat[position] for position in positions)

    def region(self, source: int, target: int) -> Box:
        """What goes from one rank of a group to another (or stays, when they are the same)."""
        key = source, target
        found: Box | None = self._memo.get(key)
        if found is None:
            found = self._memo[key] = intersect(self.held(source), self.made(target))
        return found

    def traffic(self, rank: int) -> tuple[int, int]:
        others = [other for other in self.group(rank) if other != rank]
        return (
            sum(volume(self.region(other, rank)) for other in others),
            sum(volume(self.region(rank, other)) for other in others),
        )

    @property
    def time(self) -> float:
        ranks = self.ranks if len(self.ranks) <= _EXACT_TIME_RANKS else self.ranks[:1]
        busiest = max(max(self.traffic(rank)) for rank in ranks)
        nbytes = busiest * self.before.dtype.itemsize
        return cost.exchange(self.link, len(self.group(self.ranks[0])) - 1, nbytes)


class Route(Step):
    """Messages between ranks: addends to owners that sum them, then results to those who need.

    Goes between any two layouts, on one placement (`axes`: those that change) or between two.
    """

    kind = "transfer"

    @property
    def crosses(self) -> bool:
        return self.before.placement is not self.after.placement

    @cached_property
    def ranks(self) -> tuple[int, ...]:  # type: ignore[override]
        assert self.after.placement is not None
        both = (*self.placement.flat_ranks, *self.after.placement.flat_ranks)
        return tuple(dict.fromkeys(both))

    def group(self, rank: int) -> tuple[int, ...]:
        return self.ranks if self.crosses else super().group(rank)

    @cached_property
    def kept(self) -> tuple[tuple[int, int], ...]:
        """Pairs of axes, before and after, along which addends stay apart."""
        assert self.after.placement is not None
        old, new = (
            [(axis, sbp) for axis, sbp in enumerate(meta.nd_sbp) if sbp.is_partial]
            for meta in (self.before, self.after)
        )
        if not self.crosses:
            return tuple((axis, axis) for axis, sbp in old if self.after.nd_sbp[axis] is sbp)
        shapes = self.placement.shape, self.after.placement.shape
        if [(s, shapes[0][a]) for a, s in old] != [(s, shapes[1][a]) for a, s in new]:
            return ()
        return tuple((a, b) for (a, _), (b, _) in zip(old, new, strict=True))

    @cached_property
    def fill(self) -> str | None:
        """The reduction whose identity stands where a rank gets nothing."""
        kept = {axis for _, axis in self.kept}
        for axis, sbp in enumerate(self.after.nd_sbp):
            if sbp.is_partial and axis not in kept:
                return sbp.reduction
        return None

    @cached_property
    def reduction(self) -> str | None:  # type: ignore[override]
        kept = {axis for axis, _ in self.kept}
        for axis, sbp in enumerate(self.before.nd_sbp):
            if sbp.is_partial and axis not in kept:
                return sbp.reduction
        return None

    def parts(self, rank: int) -> tuple[Part, ...]:
        """What the ranks of this rank's group do, in one order for all of them."""
        group = self.group(rank)
        found: tuple[Part, ...] | None = self._memo.get(group[0])
        if found is None:
            found = self._memo[group[0]] = self._assign(group)
        return found

    def _assign(self, group: tuple[int, ...]) -> tuple[Part, ...]:
        assert self.after.placement is not None
        dims = len(self.before.shape)
        summed = [a for a, sbp in enumerate(self.before.nd_sbp) if sbp.is_partial]
        summed = [a for a in summed if a not in {old for old, _ in self.kept}]
        filled = [a for a, sbp in enumerate(self.after.nd_sbp) if sbp.is_partial]
        filled = [a for a in filled if a not in {new for _, new in self.kept}]
        held, needed = [], []
        for rank in group:
            position = self.placement.position.get(rank)
            if position is not None:
                at = self.placement.coordinate(position)
                box = _extended(self.before.box(position), [at[old] for old, _ in self.kept])
                held.append(Held(rank, box, _index(at, summed, self.placement.shape)))
            position = self.after.placement.position.get(rank)
            if position is not None:
                at = self.after.placement.coordinate(position)
                box = _extended(self.after.box(position), [at[new] for _, new in self.kept])
                needed.append(Needed(rank, box, _index(at, filled, self.after.placement.shape)))
        return tuple(
            Part((p.box[0][:dims], p.box[1][:dims]), p.sources, p.owner, p.takers)
            for p in assign(held, needed)
        )

    def rounds(self, rank: int) -> tuple[tuple[Move, ...], ...]:
        """The messages among the rank's group, round by round; rounds without any left out."""
        key = "rounds", self.group(rank)[0]
        found: tuple[tuple[Move, ...], ...] | None = self._memo.get(key)
        if found is None:
            parts = self.parts(rank)
            both = gather_moves(parts), spread_moves(parts)
            found = self._memo[key] = tuple(moves for moves in both if moves)
        return found

    def traffic(self, rank: int) -> tuple[int, int]:
        moves = [move for turn in self.rounds(rank) for move in turn]
        return (
            sum(volume(move.box) for move in moves if move.dst == rank),
            sum(volume(move.box) for move in moves if move.src == rank),
        )

    @property
    def time(self) -> float:
        total = cost.LOCAL_EPSILON
        for moves in self.rounds(self.ranks[0]):
            loads: dict[tuple[int, bool], tuple[int, int]] = {}
            for move in moves:
                for end in (move.src, True), (move.dst, False):
                    count, size = loads.get(end, (0, 0))
                    loads[end] = count + 1, size + volume(move.box)
            messages = max(count for count, _ in loads.values())
            busiest = max(size for _, size in loads.values())
            total += cost.exchange(self.link, messages, busiest * self.before.dtype.itemsize)
        return total


class Copy(Step):
    """Every rank moves its shard to another device type."""

    kind = "copy"

    @property
    def time(self) -> float:
        nbytes = volume(self.held(self.ranks[0])) * self.before.dtype.itemsize
        return cost.LOCAL_EPSILON + nbytes * cost.COPY


def _extended(box: Box, coordinates: list[int]) -> Box:
    """The box with one further dim per kept partial axis, so that addends differ in place."""
    return (*box[0], *coordinates), (*box[1], *([1] * len(coordinates)))


def _index(at: tuple[int, ...], axes: list[int], shape: tuple[int, ...]) -> int:
    """Row-major index of a mesh coordinate among `axes`."""
    index = 0
    for axis in axes:
        index = index * shape[axis] + at[axis]
    return index


def title(step: Step) -> str:
    """The layouts a step goes between, for tables."""
    return f"{short(step.before.nd_sbp)} -> {short(step.after.nd_sbp)}"
