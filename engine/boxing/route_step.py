"""Point-to-point boxing: messages between any two layouts, on one placement or between two."""

from __future__ import annotations

from functools import cached_property

from ..meta import Box, Meta
from ..sbp import NdSbp
from . import comm_cost
from .boxes import intersect, volume
from .boxing_steps import BoxingStep, Collective
from .message_routing import Held, Move, Needed, Part, assign, gather_moves, load, spread_moves


class Route(BoxingStep):
    """Messages between ranks: addends to owners, which sum them, then results to the takers.

    Goes between any two layouts, on one placement (`axes`: those that change) or between two.
    """

    kind = "transfer"

    @property
    def crosses(self) -> bool:
        return self.before.placement is not self.target

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        both = (*self.placement.flat_ranks, *self.target.flat_ranks)
        return tuple(dict.fromkeys(both))

    def group(self, rank: int) -> tuple[int, ...]:
        return self.ranks if self.crosses else super().group(rank)

    @cached_property
    def kept(self) -> tuple[tuple[int, int], ...]:
        """Pairs of axes, before and after, along which addends stay apart."""
        old, new = (
            [(axis, sbp) for axis, sbp in enumerate(meta.nd_sbp) if sbp.is_partial]
            for meta in (self.before, self.after)
        )
        if not self.crosses:
            return tuple((axis, axis) for axis, sbp in old if self.after.nd_sbp[axis] is sbp)
        shapes = self.placement.shape, self.target.shape
        if [(s, shapes[0][a]) for a, s in old] != [(s, shapes[1][a]) for a, s in new]:
            return ()
        return tuple((a, b) for (a, _), (b, _) in zip(old, new, strict=True))

    @cached_property
    def fill(self) -> str | None:
        """The reduction whose identity fills what a rank does not receive."""
        return _reduction(self.after.nd_sbp, {axis for _, axis in self.kept})

    @cached_property
    def reduction(self) -> str | None:
        return _reduction(self.before.nd_sbp, {axis for axis, _ in self.kept})

    def parts(self, rank: int) -> tuple[Part, ...]:
        """The parts that the ranks of this rank's group sum and send, in one order for all."""
        group = self.group(rank)
        found: tuple[Part, ...] | None = self.memo.get(group[0])
        if found is None:
            found = self.memo[group[0]] = self._assign(group)
        return found

    def _assign(self, group: tuple[int, ...]) -> tuple[Part, ...]:
        dims = len(self.before.shape)
        summed = _partial_axes(self.before.nd_sbp, {old for old, _ in self.kept})
        filled = _partial_axes(self.after.nd_sbp, {new for _, new in self.kept})
        held, needed = [], []
        for rank in group:
            position = self.placement.position.get(rank)
            if position is not None:
                at = self.placement.coordinate(position)
                box = _extended(self.before.box(position), [at[old] for old, _ in self.kept])
                held.append(Held(rank, box, _index(at, summed, self.placement.shape)))
            position = self.target.position.get(rank)
            if position is not None:
                at = self.target.coordinate(position)
                box = _extended(self.after.box(position), [at[new] for _, new in self.kept])
                needed.append(Needed(rank, box, _index(at, filled, self.target.shape)))
        return tuple(
            Part((p.box[0][:dims], p.box[1][:dims]), p.sources, p.owner, p.takers)
            for p in assign(held, needed)
        )

    def rounds(self, rank: int) -> tuple[tuple[Move, ...], ...]:
        """The messages among the rank's group, round by round; rounds without any left out."""
        key = "rounds", self.group(rank)[0]
        found: tuple[tuple[Move, ...], ...] | None = self.memo.get(key)
        if found is None:
            parts = self.parts(rank)
            both = gather_moves(parts), spread_moves(parts)
            found = self.memo[key] = tuple(moves for moves in both if moves)
        return found

    def collectives(self) -> tuple[Collective, ...]:
        """One per group and round, of the ranks that send or receive in it."""
        found = []
        for group in self.groups():
            for moves in self.rounds(group[0]):
                received = dict.fromkeys(sorted({e for m in moves for e in (m.src, m.dst)}), 0)
                sent = dict(received)
                for move in moves:
                    received[move.dst] += volume(move.box)
                    sent[move.src] += volume(move.box)
                found.append(Collective(tuple(received), received, sent))
        return tuple(found)

    def traffic(self, rank: int) -> tuple[int, int]:
        counts: dict[int, list[int]] | None = self.memo.get(("traffic", self.group(rank)[0]))
        if counts is None:
            counts = {member: [0, 0] for member in self.group(rank)}
            for moves in self.rounds(rank):
                for move in moves:
                    counts[move.dst][0] += volume(move.box)
                    counts[move.src][1] += volume(move.box)
            self.memo["traffic", self.group(rank)[0]] = counts
        received, sent = counts[rank]
        return received, sent

    @property
    def time(self) -> float:
        total = comm_cost.LOCAL_EPSILON
        for moves in self.rounds(self.ranks[0]):
            messages, busiest, _ = load(moves)
            nbytes = busiest * self.before.dtype.itemsize
            total += comm_cost.exchange(self.link, messages, nbytes, self.remote)
        return total

    @property
    def remote(self) -> bool:
        """Whether messages may go to other machines: the two placements have different ranks."""
        return set(self.placement.flat_ranks) != set(self.target.flat_ranks)


def _reduction(nd_sbp: NdSbp, kept: set[int]) -> str | None:
    return next((nd_sbp[axis].reduction for axis in _partial_axes(nd_sbp, kept)), None)


def _partial_axes(nd_sbp: NdSbp, kept: set[int]) -> list[int]:
    """The partial axes but those along which addends stay apart."""
    return [axis for axis, sbp in enumerate(nd_sbp) if sbp.is_partial and axis not in kept]


def _extended(box: Box, coordinates: list[int]) -> Box:
    """The box with one further dim per kept partial axis, so that addends differ in place."""
    return (*box[0], *coordinates), (*box[1], *([1] * len(coordinates)))


def _index(at: tuple[int, ...], axes: list[int], shape: tuple[int, ...]) -> int:
    """Row-major index of a mesh coordinate among `axes`."""
    index = 0
    for axis in axes:
        index = index * shape[axis] + at[axis]
    return index


def lower_bound(src: Meta, dst: Meta) -> dict[int, int]:
    """Bytes that each rank of `dst` must receive: what it needs and does not hold.

    Where addends are joined it must receive something for every element that it needs, whatever
    it holds; nothing where the target is partial and the addends may lie anywhere.

    >>> p = onefold.placement("cpu", [0, 1])
    >>> split = onefold.zeros(8, placement=p, sbp=onefold.sbp.split(0)).meta
    >>> lower_bound(split, split.like(nd_sbp=(onefold.sbp.broadcast,)))
    {0: 16, 1: 16}
    """
    assert src.placement is not None and dst.placement is not None
    route = Route(src, dst, tuple(range(len(src.nd_sbp))))
    combined = any(
        sbp.is_partial and src.placement.shape[axis] > 1
        for axis, sbp in enumerate(src.nd_sbp)
        if axis not in {old for old, _ in route.kept}
    )
    bound = {}
    for rank, position in dst.placement.position.items():
        missing = volume(dst.box(position))
        held = src.placement.position.get(rank)
        if route.fill is not None:
            missing = 0
        elif held is not None and not combined:
            old, new = src.placement.coordinate(held), dst.placement.coordinate(position)
            if all(old[a] == new[b] for a, b in route.kept):
                missing -= volume(intersect(src.box(held), dst.box(position)))
        bound[rank] = missing * src.dtype.itemsize
    return bound
