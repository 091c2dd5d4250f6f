"""Virtual: the steps of a plan as plain tensor arithmetic, for all ranks in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..placement import Placement
from .boxes import Piece, assemble, cut, reduce
from .joins import Values, join_exchange, join_gather, keep
from .steps import AllGather, AllReduce, Copy, Exchange, Local, Step
from .transfer import Route


def apply(step: Step, values: Values) -> Values:
    """The shards after a step from those before it, for all ranks; replicas share one tensor."""
    return _APPLY[type(step)](step, values)


def _local(step: Local, values: Values) -> Values:
    made = _Once()
    return {
        rank: made.get((id(shard), step.keeps(rank), step.made(rank)), keep, step, rank, shard)
        for rank, shard in values.items()
    }


def _all_reduce(step: AllReduce, values: Values) -> Values:
    made, out = _Once(), {}
    assert step.reduction is not None
    for group in step.groups():
        addends = [values[rank] for rank in group]
        total = made.get(_ids(addends), reduce, _together(addends), step.reduction)
        out.update(_replicas(total, group, step.placement, made))
    return out


def _all_gather(step: AllGather, values: Values) -> Values:
    made, out = _Once(), {}
    for group in step.groups():
        shards = [values[rank] for rank in group]
        key = _ids(shards), step.made(group[0])
        whole = made.get(key, join_gather, step, group, _together(shards))
        out.update(_replicas(whole, group, step.placement, made))
    return out


def _exchange(step: Exchange, values: Values) -> Values:
    made, out = _Once(), {}
    for group in step.groups():
        ids = _ids([values[rank] for rank in group])
        for rank in group:
            device = values[rank].device
            key = ids, step.made(rank), device
            if key not in made.found:
                pieces = [
                    cut(values[other], step.held(other), step.region(other, rank)).to(device)
                    for other in group
                ]
                made.found[key] = join_exchange(step, rank, group, pieces)
            out[rank] = made.found[key]
    return out


def _route(step: Route, values: Values) -> Values:
    assert step.after.placement is not None
    made, out = _Once(), {}
    for group in step.groups():
        pieces: dict[int, list[Piece]] = {rank: [] for rank in group}
        for part in step.parts(group[0]):
            addends = [cut(values[rank], step.held(rank), part.box) for rank in part.sources]
            value = reduce(_together(addends), step.reduction or "sum")
            for taker in part.takers:
                device = step.after.placement.device(taker)
                moved = made.get((id(value), device), value.to, device)
                pieces[taker].append((part.box, moved))
        for rank in group:
            if rank not in step.after.placement.position:
                continue
            device, box = step.after.placement.device(rank), step.made(rank)
            key = box, device, tuple((where, id(piece)) for where, piece in pieces[rank])
            out[rank] = made.get(
                key, assemble, pieces[rank], box, step.before.dtype, device, step.fill
            )
    return out


def _copy(step: Copy, values: Values) -> Values:
    assert step.after.placement is not None
    made, out = _Once(), {}
    for rank, shard in values.items():
        device = step.after.placement.device(rank)
        out[rank] = made.get((id(shard), device), shard.to, device)
    return out


_APPLY: dict[type[Step], Callable[[Any, Values], Values]] = {
    Local: _local,
    AllReduce: _all_reduce,
    AllGather: _all_gather,
    Exchange: _exchange,
    Route: _route,
    Copy: _copy,
}


class _Once:
    """Results by what they were made of, so that replicas are computed once.

    Keys hold ids of tensors that live as long as the step runs.
    """

    def __init__(self) -> None:
        self.found: dict[object, torch.Tensor] = {}

    def get(
        self, key: object, make: Callable[..., torch.Tensor], *arguments: object
    ) -> torch.Tensor:
        found = self.found.get(key)
        if found is None:
            found = self.found[key] = make(*arguments)
        return found


def _ids(tensors: list[torch.Tensor]) -> tuple[int, ...]:
    return tuple(map(id, tensors))


def _together(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors on the first one's device."""
    device = tensors[0].device
    return [tensor.to(device) for tensor in tensors]


def _replicas(
    value: torch.Tensor, group: tuple[int, ...], placement: Placement, made: _Once
) -> Values:
    """The value for every rank of a group: one tensor per device."""
    devices = {rank: placement.device(rank) for rank in group}
    return {
        rank: made.get((id(value), device), value.to, device) for rank, device in devices.items()
    }
