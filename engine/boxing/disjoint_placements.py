"""Boxing between disjoint placements, in two halves: up to the messages, and after them.

The stages of a pipeline then do not wait for each other: the source's ranks start their messages
and continue, and the target's ranks post theirs before they need them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache

from ...distributed.point_to_point import Posted, post
from ...distributed.wait import current_op
from ...distributed.world import on_world_change
from ..meta import Meta
from . import virtual_steps
from .boxing_plan import BoxingPlan, plan
from .combine import Values
from .route_end import RouteEnd
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
        self._ends: dict[int, RouteEnd] = {}

    @property
    def received(self) -> dict[int, int]:
        """Bytes that each rank of the target receives from the source's."""
        return {rank: self.route.received(rank) for rank in self.route.ranks}

    # One process owns all ranks.

    @cached_property
    def _carry(self) -> Callable[[Values], Values]:
        return virtual_steps.prepare(self.route)

    def carry(self, shards: Shards, op: str) -> Shards:
        """The shards to pass to `arrive`, from the source's shards."""
        value = run(self.before, shards, op)
        log(self.route, op)
        sources = dict(zip(self.route.placement.flat_ranks, value, strict=True))
        moved = self._carry(sources)
        return tuple([moved[rank] for rank in self.route.target.flat_ranks])

    def arrive(self, shards: Shards, op: str) -> Shards:
        """The target's shards, from the result of `carry` or `receive`."""
        return run(self.after, shards, op)

    # One process owns one rank.

    def send(self, rank: int, shards: Shards, op: str) -> Posted:
        """Start the messages of one of the source's ranks."""
        value = run(self.before, shards, op)
        log(self.route, op)
        (shard,) = value
        with current_op.named(op):
            return post(self._end(rank).outgoing(shard), [])

    def expect(self, rank: int, op: str) -> Posted:
        """Post the receives of one of the target's ranks."""
        with current_op.named(op):
            return post([], self._end(rank).expected())

    def receive(self, rank: int, posted: Posted, op: str) -> Shards:
        """Wait for the posted receives; returns the shards for `arrive`."""
        log(self.route, op)
        with current_op.named(op):
            shard = self._end(rank).finish(None, posted.wait())
        assert shard is not None
        return (shard,)

    def _end(self, rank: int) -> RouteEnd:
        found = self._ends.get(rank)
        if found is None:
            found = self._ends[rank] = RouteEnd(self.route, rank, straight=True)
        return found


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
