"""Costs of communication: the seconds, bytes and link of each step of a boxing plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...engine.boxing.boxes import volume
from ...engine.boxing.boxing_steps import AllGather, AllReduce, BoxingStep, Exchange
from ...engine.boxing.message_routing import Move
from ...engine.boxing.route_step import Route
from ...engine.placement import Placement
from ..hardware import Hardware
from ..hardware.collective_cost import (
    Span,
    all_gather,
    all_reduce,
    all_to_all,
    message,
    reduce_scatter,
    span,
)
from .step_costs import StepCosts

_MAX_SENDERS = 64  # of a route whose busiest is looked for


@dataclass(frozen=True, slots=True)
class Communication:
    """What a boxing takes on one rank."""

    seconds: float = 0.0
    # Of these, in which the host begins it and can do nothing else; 0 where it works ahead.
    begun: float = 0.0
    # The bytes that it receives, by kind of collective and name of the farthest link.
    traffic: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def received(self) -> int:
        """Bytes of all kinds."""
        return sum(self.traffic.values())

    @property
    def kind(self) -> str:
        """The kinds of collectives, with a plus between several; empty for none.

        >>> Communication(0.1, 0.0, {("all_gather", "NVLink"): 8, ("all_to_all", "NVLink"): 8}).kind
        'all_gather + all_to_all'
        """
        return " + ".join(dict.fromkeys(kind for kind, _ in self.traffic))

    def __add__(self, other: Communication) -> Communication:
        traffic = dict(self.traffic)
        for key, nbytes in other.traffic.items():
            traffic[key] = traffic.get(key, 0) + nbytes
        return Communication(self.seconds + other.seconds, self.begun + other.begun, traffic)


class CommCosts:
    """The costs of boxing plans; how groups of ranks lie is found once."""

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        # By rank, the groups that it communicates with; () stands for messages to single ranks.
        self.groups: defaultdict[int, set[tuple[int, ...]]] = defaultdict(set)
        self._spans: dict[tuple[Placement, tuple[int, ...]], tuple[Span, ...]] = {}

    def of(self, steps: Sequence[BoxingStep], rank: int, costs: StepCosts) -> Communication:
        """The steps of a plan on one rank, one after the other.

        A collective takes as long as in the slowest of its groups.
        """
        total = Communication()
        for step in steps:
            if rank in step.ranks:
                found = self._of(step, rank, costs)
                # Only the first can begin before the end is waited for.
                total += replace(found, begun=0.0) if total.begun else found
                if not step.local:
                    group = () if isinstance(step, Route) else tuple(step.group(rank))
                    self.groups[rank].add(group)
        return total

    def _of(self, step: BoxingStep, rank: int, costs: StepCosts) -> Communication:
        itemsize = step.before.dtype.itemsize
        if step.local:
            made = volume(step.made(rank)) * itemsize
            return Communication(costs.launched(0.0 if step.aliases else costs.moving(2 * made)))
        if isinstance(step, Route):
            return self._route(step, rank)
        spans = self.spans(step.placement, step.axes)
        held, made = (volume(box) * itemsize for box in (step.held(rank), step.made(rank)))
        if not spans[0].fans:  # the axis has one rank, which copies its shard
            return Communication(costs.launched(costs.moving(held + made)))
        traffic = {(step.kind, spans[0].link.name): step.received(rank)}
        if isinstance(step, AllReduce):
            seconds = max(all_reduce(group, held) for group in spans)
        elif isinstance(step, AllGather):
            seconds = max(all_gather(group, made) for group in spans) + costs.moving(2 * made)
        elif isinstance(step, Exchange) and step.kind == "reduce_scatter":
            # On the CPU each rank sends the parts and adds those that it gets.
            seconds = max(reduce_scatter(group, held) for group in spans)
            seconds += costs.moving(2 * held + made)
        else:
            seconds = max(all_to_all(group, held * group.ranks) for group in spans)
            seconds += costs.moving(2 * (held + made))
        return Communication(seconds, min(self.hardware.collective_launch, seconds), traffic)

    def spans(self, placement: Placement, axes: tuple[int, ...]) -> tuple[Span, ...]:
        """The different ways in which the groups along some axes of a mesh lie."""
        key = placement, tuple(sorted(axes))
        if key not in self._spans:
            flat, seen = placement.flat_ranks, set[int]()
            found: dict[tuple[int, ...], Span] = {}
            for position in range(len(flat)):
                if position not in seen:
                    members = placement.group(position, key[1])
                    seen.update(members)
                    group = span(self.hardware, [flat[member] for member in members])
                    found.setdefault((*group.fans, *map(id, group.links)), group)
            self._spans[key] = tuple(found.values())
        return self._spans[key]

    def _route(self, step: Route, rank: int) -> Communication:
        """Messages: as long as the busiest rank takes, or that rank itself where there are many."""
        total = Communication()
        whole = len(step.ranks) <= _MAX_SENDERS
        for moves in step.rounds(rank):
            ends = {end for move in moves for end in (move.src, move.dst)} if whole else {rank}
            times = [self._messages(step, moves, each) for each in ends]
            mine = self._messages(step, moves, rank)
            total += Communication(max(each.seconds for each in times), mine.begun, mine.traffic)
        return total

    def _messages(self, step: Route, moves: Sequence[Move], rank: int) -> Communication:
        """What one rank sends and receives in a round, at once."""
        itemsize = step.before.dtype.itemsize
        seconds, traffic = 0.0, dict[tuple[str, str], int]()
        for at in ("src", "dst"):
            by_link: dict[str, list[int]] = {}
            for move in moves:
                if getattr(move, at) == rank and move.src != move.dst:
                    link = self.hardware.level(move.src, move.dst)
                    by_link.setdefault(link.name, []).append(volume(move.box) * itemsize)
            for link in self.hardware.links:
                sizes = by_link.get(link.name, [])
                if sizes:
                    seconds = max(seconds, message(link, sum(sizes), len(sizes)))
                if sizes and at == "dst":
                    traffic[step.kind, link.name] = sum(sizes)
        return Communication(seconds, min(self.hardware.collective_launch, seconds), traffic)
