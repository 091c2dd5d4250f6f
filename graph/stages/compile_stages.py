"""Compiles a program with stages to a plan that is checked for deadlock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...distributed.world import world
from ...engine.meta import Meta
from ...errors import user_line, warn
from ..graph_config import GraphConfig
from ..ir import Program, verify
from ..micro_batches import joining, slicing
from ..schedules.schedule_check import check_forms
from .partition import partition
from .rendezvous import check_rendezvous
from .stage_plan import StagePlan, forward_only, plan_stages, schedule_for
from .state_order import check_states


class PipelineWarning(UserWarning):
    """A graph's stages wait for each other more than necessary."""


def compile_stages(
    program: Program,
    ranks: Sequence[frozenset[int]],
    config: GraphConfig,
    metas: Sequence[Meta],
    whole: frozenset[int],
    finish: Callable[[Program], Program],
) -> StagePlan:
    """Cut the program, choose and check its schedule, and plan every group's instructions.

    `metas` are those of a call's inputs, of which micro-batches get all of those in `whole`;
    `finish` adds the updates to what is done after the
    micro-batches.
    """
    schedule = schedule_for(ranks, config.schedule, config.micro_batches)
    split = any(action.kind == "I" for actions in schedule.ranks for action in actions)
    staged = partition(program, ranks, split)
    staged.slices = slicing(program, metas, config.micro_batches, whole)
    last = max(program.last_number(), staged.slices.last_number())
    count = config.micro_batches
    end = joining(program, staged.sums, staged.after, staged.results(), staged.last, count, last)
    staged.end = replace(end, program=finish(end.program))
    verify(staged.end.program)
    if not any(kind != "F" for kind, _ in staged.segments):
        schedule = forward_only(schedule)
    else:
        check_forms(schedule)
    if len(ranks) > 1 and config.micro_batches == 1 and world().rank in (None, 0):
        warn(
            f"the graph called at {user_line()} has {len(ranks)} stages but one micro-batch, so "
            "while one stage works the others wait; cut the batch with "
            "self.config.set_gradient_accumulation_steps(n) in the graph's __init__",
            PipelineWarning,
        )
    plan = plan_stages(staged, schedule)
    check_rendezvous(plan)
    check_states(plan)
    return plan
