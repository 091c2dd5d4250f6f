"""Launched: the steps of a plan as collectives, for the one rank of this process.

Sums are in rank order, as in the virtual world, so that all replicas and both worlds agree bit
for bit. Gloo's own all_reduce adds in an order of its own, so with three ranks or more floating
numbers are exchanged, summed here and gathered: the same bytes. On cuda the sum is NCCL's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ...distributed import collectives
from ...distributed.world import world
from ..meta import Box, balanced
from .boxes import Piece, assemble, cut, reduce
from .joins import Values, join_exchange, join_gather, keep
from .steps import AllGather, AllReduce, Copy, Exchange, Local, Step
from .transfer import Route


def apply(step: Step, values: Values, rank: int) -> Values:
    """The shard after a step from the one before it; empty outside the step's placement."""
    if rank not in step.ranks:
        return {}
    return _APPLY[type(step)](step, values, rank)


def _local(step: Local, values: Values, rank: int) -> Values:
    return {rank: keep(step, rank, values[rank])}


def _copy(step: Copy, values: Values, rank: int) -> Values:
    assert step.after.placement is not None
    return {rank: values[rank].to(step.after.placement.device(rank))}


def _all_reduce(step: AllReduce, values: Values, rank: int) -> Values:
    value, group, reduction = values[rank], step.group(rank), step.reduction
    assert reduction is not None
    exact = not (value.is_floating_point() or value.is_complex())
    nccl = value.is_cuda and not world().connection().staged
    if exact or nccl or (len(group) == 2 and reduction == "sum"):
        return {rank: collectives.all_reduce(value, group, reduction)}
    flat = value.reshape(-1)
    chunks = [balanced(flat.numel(), len(group), index) for index in range(len(group))]
    me = group.index(rank)
    mine = flat.narrow(0, *chunks[me])
    sends = [flat.narrow(0, *chunk) for chunk in chunks]
    sends[me] = flat.narrow(0, 0, 0)
    shapes: list[tuple[int, ...]] = [tuple(mine.shape)] * len(group)
    shapes[me] = (0,)
    pieces = collectives.exchange(sends, shapes, group)
    pieces[me] = mine
    total = reduce(pieces, reduction)
    parts = collectives.all_gather(total, group, [(size,) for _, size in chunks])
    return {rank: torch.cat(parts).view(value.shape)}


def _all_gather(step: AllGather, values: Values, rank: int) -> Values:
    group = step.group(rank)
    shapes = [step.held(other)[1] for other in group]
    shards = collectives.all_gather(values[rank].contiguous(), group, shapes)
    return {rank: join_gather(step, group, shards)}


def _exchange(step: Exchange, values: Values, rank: int) -> Values:
    value, group, held = values[rank], step.group(rank), step.held(rank)
    me = group.index(rank)
    sends = [cut(value, held, step.region(rank, other)).contiguous() for other in group]
    own = sends[me]
    sends[me] = own.reshape(-1).narrow(0, 0, 0)
    shapes = [step.region(other, rank)[1] for other in group]
    shapes[me] = (0,)
    pieces = collectives.exchange(sends, shapes, group)
    pieces[me] = own
    return {rank: join_exchange(step, rank, group, pieces)}


def _route(step: Route, values: Values, rank: int) -> Values:
    assert step.after.placement is not None
    schedule = _schedule(step, rank)
    dtype, device = step.before.dtype, step.placement.device(rank)
    addends = _round(
        schedule.gather,
        lambda part, box: cut(values[rank], step.held(rank), box),
        dtype,
        device,
    )
    results: dict[int, torch.Tensor] = {}
    for part, box, sources in schedule.owned:
        found = [
            cut(values[rank], step.held(rank), box) if source == rank else addends[part, source]
            for source in sources
        ]
        results[part] = reduce(found, step.reduction or "sum")
    taken = _round(schedule.spread, lambda part, box: results[part], dtype, device)
    if rank not in step.after.placement.position:
        return {}
    pieces: list[Piece] = [
        (box, results[part] if owner == rank else taken[part, owner])
        for part, box, owner in schedule.pieces
    ]
    return {rank: assemble(pieces, step.made(rank), dtype, device, step.fill)}


_Message = tuple[int, int, Box]  # (part, peer, region)


@dataclass(frozen=True, slots=True)
class _Round:
    """The messages of one rank in one round, in the order that all ranks agree on."""

    sends: tuple[_Message, ...]
    recvs: tuple[_Message, ...]


@dataclass(frozen=True, slots=True)
class _Schedule:
    """What one rank does in a route."""

    gather: _Round
    owned: tuple[tuple[int, Box, tuple[int, ...]], ...]  # (part, region, sources)
    spread: _Round
    pieces: tuple[tuple[int, Box, int], ...]  # (part, region, owner)


def _schedule(step: Route, rank: int) -> _Schedule:
    found = step.memo.get(("schedule", rank))
    if isinstance(found, _Schedule):
        return found
    parts = list(enumerate(step.parts(rank)))
    gather = _Round(
        tuple(
            (number, part.owner, part.box)
            for number, part in parts
            for source in part.sources
            if source == rank != part.owner
        ),
        tuple(
            (number, source, part.box)
            for number, part in parts
            for source in part.sources
            if part.owner == rank != source
        ),
    )
    spread = _Round(
        tuple(
            (number, taker, part.box)
            for number, part in parts
            for taker in part.takers
            if part.owner == rank != taker
        ),
        tuple(
            (number, part.owner, part.box)
            for number, part in parts
            if rank in part.takers and part.owner != rank
        ),
    )
    found = step.memo["schedule", rank] = _Schedule(
        gather,
        tuple((number, part.box, part.sources) for number, part in parts if part.owner == rank),
        spread,
        tuple((number, part.box, part.owner) for number, part in parts if rank in part.takers),
    )
    return found


def _round(
    turn: _Round,
    value: Callable[[int, Box], torch.Tensor],
    dtype: torch.dtype,
    device: torch.device,
) -> dict[tuple[int, int], torch.Tensor]:
    """What arrived, by (part, sender)."""
    if not turn.sends and not turn.recvs:
        return {}
    arrived = collectives.transfer(
        [(peer, value(part, box).contiguous()) for part, peer, box in turn.sends],
        [(peer, box[1], dtype, device) for _, peer, box in turn.recvs],
    )
    keys = [(part, peer) for part, peer, _ in turn.recvs]
    return dict(zip(keys, arrived, strict=True))


_APPLY: dict[type[Step], Callable[[Any, Values, int], Values]] = {
    Local: _local,
    AllReduce: _all_reduce,
    AllGather: _all_gather,
    Exchange: _exchange,
    Route: _route,
    Copy: _copy,
}
