"""Boxing between disjoint placements, in two halves: up to the messages, and after them.

The stages of a pipeline then do not wait for each other: the source's ranks start their messages
and continue, and the target's ranks post theirs before they need them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch

from ...distributed import collectives
from ...distributed.collectives import Posted
from ...distributed.world import on_world_change
from ..meta import Box, Meta
from . import virtual_steps
from .boxes import Cut, cut_out, take
from .boxing_plan import BoxingPlan, plan
from .combine import Layout, Values, reduce
from .route_step import Route
from .run_boxing import Shards, log, run


class DisjointBoxing:
    """The three parts of a plan: on the source's ranks, between them, on the target's.

    In a virtual world `carry` and `arrive` do everything; in a launched one the source's ranks
    call `send`, and the target's `expect` and later `receive`.
    """

    def __init__(self, whole: BoxingPlan) -> None:
        (at,) = [i for i, step in enumerate(whole.steps) if isinstance(step, Route)]
        route = whole.steps[at]
        assert isinstance(route, Route)
        self.plan = whole
        self.route = route
        self.before = BoxingPlan(whole.src, route.before, whole.steps[:at])
        self.after = BoxingPlan(route.after, whole.dst, whole.steps[at + 1 :])
        self._ends: dict[int, _End] = {}
        self._carry: Callable[[Values], Values] | None = None

    @property
    def received(self) -> dict[int, int]:
        """Bytes that each rank of the target receives from the source's."""
        return {rank: self.route.received(rank) for rank in self.route.ranks}

    # One process owns all ranks.

    def carry(self, shards: Shards, op: str) -> Shards:
        """The shards between the source and `arrive`, from the source's."""
        value = run(self.before, shards, op)
        log(self.route, op)
        assert self.route.after.placement is not None
        sources = dict(zip(self.route.placement.flat_ranks, value, strict=True))
        if self._carry is None:
            self._carry = virtual_steps.prepare(self.route)
        moved = self._carry(sources)
        return tuple([moved[rank] for rank in self.route.after.placement.flat_ranks])

    def arrive(self, shards: Shards, op: str) -> Shards:
        """The target's shards from those that `carry` or `receive` gave."""
        return run(self.after, shards, op)

    # One process owns one rank.

    def send(self, rank: int, shards: Shards, op: str) -> Posted:
        """Start the messages of one of the source's ranks."""
        value = run(self.before, shards, op)
        log(self.route, op)
        collectives.current_op.name = op
        (shard,) = value
        parts = [(to, take(shard, cut).contiguous()) for to, cut in self._end(rank).sends]
        return collectives.post(parts, [])

    def expect(self, rank: int, op: str) -> Posted:
        """Post what one of the target's ranks will receive."""
        collectives.current_op.name = op
        end = self._end(rank)
        dtype, device = self.route.before.dtype, end.device
        wanted = [(source, box[1], dtype, device) for source, box in end.arriving]
        return collectives.post([], wanted)

    def receive(self, rank: int, posted: Posted, op: str) -> Shards:
        """Wait for what was expected; the shards for `arrive`."""
        log(self.route, op)
        collectives.current_op.name = op
        return (self._end(rank).join(posted.wait(), self.route),)

    def _end(self, rank: int) -> _End:
        found = self._ends.get(rank)
        if found is None:
            found = self._ends[rank] = _End(self.route, rank)
        return found


class _End:
    """What one rank does in a route between disjoint placements.

    The source's ranks send addends, or parts that they hold alone. The target's ranks sum the
    addends of the parts that they own, and pass parts on to others of the target.
    """

    def __init__(self, route: Route, rank: int) -> None:
        assert route.after.placement is not None
        sources, targets = route.placement.position, route.after.placement.position
        assert not sources.keys() & targets.keys()
        self.sends: list[tuple[int, Cut]] = []
        self.arriving: list[tuple[int, Box]] = []  # from the source's ranks
        self.passed: list[tuple[int, Box]] = []  # from the target's
        self._own: list[tuple[list[int], list[int]]] = []  # of parts: arriving addends, takers
        pieces: list[tuple[Box, bool, int]] = []  # region, whether it arrives, which
        for part in route.parts(rank):
            assert part.owner in targets or part.sources == (part.owner,)
            if rank in sources:
                to = part.takers if part.owner in sources else (part.owner,)
                if rank in part.sources:
                    cut = cut_out(part.box, route.held(rank))
                    self.sends += [(taker, cut) for taker in to]
                continue
            takes = rank in part.takers
            if part.owner == rank or (takes and part.owner in sources):
                first = len(self.arriving)
                self.arriving += [(source, part.box) for source in part.sources]
                others = [taker for taker in part.takers if taker != rank]
                self._own.append(
                    (
                        list(range(first, len(self.arriving))),
                        others if part.owner == rank else [],
                    )
                )
                if takes:
                    pieces.append((part.box, True, len(self._own) - 1))
            elif takes:
                pieces.append((part.box, False, len(self.passed)))
                self.passed.append((part.owner, part.box))
        self._pieces = [(arrives, number) for _, arrives, number in pieces]
        self._layout = None
        if rank in targets:
            self.device = route.after.placement.device(rank)
            regions = [box for box, _, _ in pieces]
            self._layout = Layout(regions, route.made(rank), route.fill)

    def join(self, arrived: list[torch.Tensor], route: Route) -> torch.Tensor:
        """The rank's shard from what arrived, after passing on what others need."""
        assert self._layout is not None
        dtype, reduction = route.before.dtype, route.reduction or "sum"
        made = [reduce([arrived[i] for i in indices], reduction) for indices, _ in self._own]
        passed: list[torch.Tensor] = []
        outgoing = [
            (to, value.contiguous())
            for value, (_, others) in zip(made, self._own, strict=True)
            for to in others
        ]
        if outgoing or self.passed:
            wanted = [(source, box[1], dtype, self.device) for source, box in self.passed]
            passed = collectives.transfer(outgoing, wanted)
        found = [made[i] if arrives else passed[i] for arrives, i in self._pieces]
        return self._layout.build(found, dtype, self.device)


@lru_cache(maxsize=1024)
def disjoint_boxing(src: Meta, dst: Meta) -> DisjointBoxing:
    """The plan between two layouts on disjoint placements, cut; the same on every process.

    >>> B = onefold.sbp.broadcast
    >>> first, second = onefold.placement("cpu", [0]), onefold.placement("cpu", [1, 2])
    >>> x = onefold.ones(4, placement=first, sbp=B)
    >>> between = disjoint_boxing(x.meta, onefold.zeros(4, placement=second, sbp=B).meta)
    >>> between.arrive(between.carry(x.shards, "boxing"), "boxing")[1]
    tensor([1., 1., 1., 1.])
    """
    return DisjointBoxing(plan(src, dst))


on_world_change(disjoint_boxing.cache_clear)
