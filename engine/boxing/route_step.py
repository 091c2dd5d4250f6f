"""Point-to-point boxing: messages between any two layouts, on one placement or between two."""

from __future__ import annotations

from functools import cached_property

from ..meta import Box
from . import comm_cost
from .boxes import volume
from .boxing_steps import BoxingStep, Collective
from .message_routing import Held, Move, Needed, Part, assign, gather_moves, load, spread_moves


class Route(BoxingStep):
    """Messages between ranks: addends to owners that sum them, then results to those who need.

    Goes between any two layouts, on one placement (`axes`: those that change) or between two.
    """

    kind = "transfer"

    @property
    def crosses(self) -> bool:
        return self.before.placement is not self.after.placement

    @cached_property
    def ranks(self) -> tuple[int, ...]:
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
    def reduction(self) -> str | None:
        kept = {axis for axis, _ in self.kept}
        for axis, sbp in enumerate(self.before.nd_sbp):
            if sbp.is_partial and axis not in kept:
                return sbp.reduction
        return None

    def parts(self, rank: int) -> tuple[Part, ...]:
        """What the ranks of this rank's group do, in one order for all of them."""
        group = self.group(rank)
        found: tuple[Part, ...] | None = self.memo.get(group[0])
        if found is None:
            found = self.memo[group[0]] = self._assign(group)
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
        assert self.after.placement is not None
        return set(self.placement.flat_ranks) != set(self.after.placement.flat_ranks)


def _extended(box: Box, coordinates: list[int]) -> Box:
    """The box with one further dim per kept partial axis, so that addends differ in place."""
    return (*box[0], *coordinates), (*box[1], *([1] * len(coordinates)))


def _index(at: tuple[int, ...], axes: list[int], shape: tuple[int, ...]) -> int:
    """Row-major index of a mesh coordinate among `axes`."""
    index = 0
    for axis in axes:
        index = index * shape[axis] + at[axis]
    return index
