"""Joins: what one rank makes of the pieces it has; the same arithmetic in both worlds."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .boxes import assemble, cut, identity_of, reduce
from .steps import AllGather, Exchange, Local

Values = dict[int, torch.Tensor]  # the shards of the ranks that this process owns


def keep(step: Local, rank: int, shard: torch.Tensor) -> torch.Tensor:
    """The rank's shard after a local step: a slice, or a part amid the identity."""
    region, box = step.keeps(rank), step.made(rank)
    if region is None:
        return torch.full(
            box[1], identity_of("sum", shard.dtype), dtype=shard.dtype, device=shard.device
        )
    pieces = [(region, cut(shard, step.held(rank), region))]
    return assemble(pieces, box, shard.dtype, shard.device, step.fill)


def join_gather(
    step: AllGather, group: Sequence[int], shards: Sequence[torch.Tensor]
) -> torch.Tensor:
    """A group's shards as one tensor."""
    pieces = [(step.held(rank), shard) for rank, shard in zip(group, shards, strict=True)]
    like = shards[0]
    whole = assemble(pieces, step.made(group[0]), like.dtype, like.device)
    # When one shard is everything, the others being empty, the result must not be that shard.
    return whole.clone() if any(whole is shard for shard in shards) else whole


def join_exchange(
    step: Exchange, rank: int, group: Sequence[int], pieces: Sequence[torch.Tensor]
) -> torch.Tensor:
    """The rank's shard from the pieces of its group: neighbours are summed, regions joined."""
    found = []
    for first in range(0, len(group), step.addends):
        region = step.region(group[first], rank)
        values = reduce(pieces[first : first + step.addends], step.reduction or "sum")
        found.append((region, values))
    return assemble(found, step.made(rank), step.before.dtype, pieces[0].device)
