"""Run: carries a boxing plan out, on the shards that this process owns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

from ...distributed import collectives, comm_log
from ...distributed.world import world
from ...errors import user_line
from . import launched, virtual
from .plan import BoxingPlan
from .steps import Step

Shards: TypeAlias = tuple[torch.Tensor, ...]


def run(plan: BoxingPlan, shards: Shards, op: str = "boxing") -> Shards:
    """The shards of `plan.dst` that this process owns, from those of `plan.src`.

    `shards` are in the order of `src.placement.owned`; the result is in that of
    `dst.placement.owned`, empty on a process outside it. `op` names the caller in the log and in
    errors. In a virtual world equal replicas are one torch tensor. The result may share memory
    with `shards` if `plan.aliases`.

    >>> p = onefold.placement("cpu", [0, 1])
    >>> x = onefold.ones(4, placement=p, sbp=onefold.sbp.split(0))
    >>> whole = x.meta.like(nd_sbp=(onefold.sbp.broadcast,))
    >>> run(onefold.engine.boxing.plan(x.meta, whole), x.shards)[0]
    tensor([1., 1., 1., 1.])
    """
    if not plan.steps:
        return shards
    if comm_log.active():
        for step in plan.steps:
            log(step, op)
    here = world()
    program: Callable[[Shards], Shards] | None = plan.programs.get(here.rank)
    if program is None:
        made = _virtual(plan) if here.rank is None else _launched(plan, here.rank)
        program = plan.programs[here.rank] = made
    if here.launched:
        collectives.current_op.name = op
    return program(shards)


def _virtual(plan: BoxingPlan) -> Callable[[Shards], Shards]:
    assert plan.src.placement is not None and plan.dst.placement is not None
    sources, targets = plan.src.placement.flat_ranks, plan.dst.placement.flat_ranks
    steps = [virtual.prepare(step) for step in plan.steps]

    def program(shards: Shards) -> Shards:
        values = dict(zip(sources, shards, strict=True))
        for step in steps:
            values = step(values)
        return tuple([values[rank] for rank in targets])

    return program


def _launched(plan: BoxingPlan, rank: int) -> Callable[[Shards], Shards]:
    assert plan.dst.placement is not None
    steps = [launched.prepare(step, rank) for step in plan.steps]
    member = rank in plan.dst.placement.position

    def program(shards: Shards) -> Shards:
        value = shards[0] if shards else None
        for step in steps:
            value = step(value)
        if not member:
            return ()
        assert value is not None
        return (value,)

    return program


def log(step: Step, op: str) -> None:
    """One record per group and round, the same in both worlds and on every process."""
    if not comm_log.active():
        return
    line, dtype = user_line(), step.before.dtype
    for group in step.collectives():
        comm_log.record(
            kind=step.kind,
            ranks=group.ranks,
            dtype=dtype,
            sent={rank: count * dtype.itemsize for rank, count in group.sent.items()},
            received={rank: count * dtype.itemsize for rank, count in group.received.items()},
            op=op,
            line=line,
        )
