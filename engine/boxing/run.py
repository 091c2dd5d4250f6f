"""Run: carries a boxing plan out, on the shards that this process owns."""

from __future__ import annotations

import torch

from ...distributed import collectives, comm_log
from ...distributed.world import world
from ...errors import user_line
from . import launched, virtual
from .plan import BoxingPlan


def run(
    plan: BoxingPlan, shards: tuple[torch.Tensor, ...], op: str = "boxing"
) -> tuple[torch.Tensor, ...]:
    """The shards of `plan.dst` that this process owns, from those of `plan.src`.

    `shards` are in the order of `src.placement.owned`; the result is in that of
    `dst.placement.owned`, empty on a process outside it. `op` names the caller in the log.
    In a virtual world equal replicas are one torch tensor.
    """
    source, target = plan.src.placement, plan.dst.placement
    assert source is not None and target is not None
    assert len(shards) == len(source.owned)
    if not plan.steps:
        return shards
    if comm_log.active():
        _log(plan, op)
    values = {
        source.flat_ranks[position]: shard
        for position, shard in zip(source.owned, shards, strict=True)
    }
    here = world()
    collectives.current_op.name = op
    for step in plan.steps:
        if here.rank is None:
            values = virtual.apply(step, values)
        else:
            values = launched.apply(step, values, here.rank)
    return tuple(values[target.flat_ranks[position]] for position in target.owned)


def _log(plan: BoxingPlan, op: str) -> None:
    """One record per group and round, the same in both worlds and on every process."""
    line = user_line()
    width = plan.src.dtype.itemsize
    for step in plan.steps:
        for collective in step.collectives():
            comm_log.record(
                kind=step.kind,
                ranks=collective.ranks,
                dtype=plan.src.dtype,
                sent={rank: count * width for rank, count in collective.sent.items()},
                received={rank: count * width for rank, count in collective.received.items()},
                op=op,
                line=line,
            )
