"""Runs a boxing plan on the shards that this process owns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, TypeVar

import torch

from ...distributed import comm_log, provenance
from ...distributed.wait import current_op
from ...distributed.world import world
from ...errors import OnefoldRuntimeError, user_line
from ..meta import blank_shards
from ..sbp import broadcast
from . import launched_steps, virtual_steps
from .boxing_plan import BoxingPlan
from .boxing_steps import BoxingStep

Shards: TypeAlias = tuple[torch.Tensor, ...]
R = TypeVar("R")


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
    if shards and shards[0].is_meta:
        return _without_data(plan)
    program: Callable[[Shards], Shards] | None = plan.programs.get(here.rank)
    if program is None:
        program = plan.programs[here.rank] = _program(plan, here.rank)
    if not here.launched:
        return _watched(program, shards, op)
    if provenance.state.on:
        program = partial(_followed, plan, program)
    current_op.name = op
    try:
        if comm_log.watchers:
            return _watched(program, shards, op)
        return program(shards)
    finally:
        current_op.name = ""  # who communicates next may do so with other ranks


def _watched(program: Callable[[Shards], R], shards: Shards, op: str) -> R:
    return comm_log.watched(op, lambda: program(shards)) if comm_log.watchers else program(shards)


def start(
    plan: BoxingPlan, shards: Shards, op: str = "boxing", consumes: bool = False
) -> Callable[[], Shards]:
    """Start what `run` does; returns a function that waits and gives the shards of `plan.dst`.

    All ranks of the world that own shards of either layout start their plans in one order, and
    end them in one order. `shards` must not change before the end; with `consumes` they are not
    used again and may be overwritten. In a virtual world, and where nothing can be left to others,
    it is done at once.
    """
    here = world()
    if here.rank is None or not plan.communicates or not plan.dst.has_data:
        shards = run(plan, shards, op)
        return lambda: shards
    for step in plan.steps:
        log(step, op)
    key = "start", here.rank, consumes
    begin: Callable[[Shards], Callable[[], Shards]] | None = plan.programs.get(key)
    if begin is None:
        begin = plan.programs[key] = _in_two(plan, here.rank, consumes)
    current_op.name = op
    if provenance.state.on:
        current_op.origin = provenance.state.program or provenance.origin(shards)
    try:
        end = _watched(begin, shards, op)
    finally:
        current_op.name, current_op.origin = "", 0

    def finish() -> Shards:
        current_op.name = op
        try:
            made = comm_log.watched(op, end) if comm_log.watchers else end()
        finally:
            current_op.name = ""
        return _arrived(plan, shards, made) if provenance.state.on else made

    return finish


def _followed(plan: BoxingPlan, program: Callable[[Shards], Shards], shards: Shards) -> Shards:
    """The result of `program`, after the ranks have compared the origins of the shards."""
    current_op.origin = provenance.state.program or provenance.origin(shards)
    try:
        return _arrived(plan, shards, program(shards))
    finally:
        current_op.origin = 0


def _arrived(plan: BoxingPlan, shards: Shards, made: Shards) -> Shards:
    """The shards after a plan, with their origin: that of what is whole on all ranks is new."""
    src, dst = plan.src, plan.dst
    moved = dst.placement is not src.placement or broadcast not in src.nd_sbp
    if moved and all(sbp is broadcast for sbp in dst.nd_sbp):
        provenance.record(made, plan.arrival)
    else:  # some ranks may have the same shards as before
        provenance.copy_to(made, shards)
    return made


def _in_two(
    plan: BoxingPlan, rank: int, consumes: bool
) -> Callable[[Shards], Callable[[], Shards]]:
    """The plan up to its first wait, and the rest."""
    at = next((i for i, step in enumerate(plan.steps) if not step.local), 0)
    before = [launched_steps.prepare(step, rank) for step in plan.steps[:at]]
    waited = launched_steps.prepare_begin(plan.steps[at], rank, consumes and at == 0)
    whole = _launched(plan, rank)
    after = [launched_steps.prepare(step, rank) for step in plan.steps[at + 1 :]]

    def begin(shards: Shards) -> Callable[[], Shards]:
        if waited is None:
            made = whole(shards)
            return lambda: made
        value = shards[0] if shards else None
        for step in before:
            value = step(value)
        end = waited(value)

        def finish() -> Shards:
            value: torch.Tensor | None = end()
            for step in after:
                value = step(value)
            return () if value is None else (value,)

        return finish

    return begin


def _program(plan: BoxingPlan, rank: int | None) -> Callable[[Shards], Shards]:
    if not plan.dst.has_data:
        return lambda shards: blank_shards(plan.dst)
    return _virtual(plan) if rank is None else _launched(plan, rank)


def _without_data(plan: BoxingPlan) -> Shards:
    """The shards of `plan.dst` where those of `plan.src` have no data."""
    moves = plan.communicates and plan.dst.placement is not plan.src.placement
    if moves and plan.dst.has_data and world().launched:  # who is not a member cannot know
        raise OnefoldRuntimeError(
            f"a tensor without data, {plan.src!r}, cannot move to other ranks: make it where it "
            "belongs, or give it data first (module.to_empty(device=...), reset_parameters())"
        )
    return blank_shards(plan.dst)


def _virtual(plan: BoxingPlan) -> Callable[[Shards], Shards]:
    sources, targets = plan.src.global_placement.flat_ranks, plan.dst.global_placement.flat_ranks
    steps = [virtual_steps.prepare(step) for step in plan.steps]

    def program(shards: Shards) -> Shards:
        values = dict(zip(sources, shards, strict=True))
        for step in steps:
            values = step(values)
        return tuple([values[rank] for rank in targets])

    return program


def _launched(plan: BoxingPlan, rank: int) -> Callable[[Shards], Shards]:
    steps = [launched_steps.prepare(step, rank) for step in plan.steps]
    member = rank in plan.dst.global_placement.position

    def program(shards: Shards) -> Shards:
        value = shards[0] if shards else None
        for step in steps:
            value = step(value)
        if not member:
            return ()
        assert value is not None
        return (value,)

    return program


def log(step: BoxingStep, op: str) -> None:
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
