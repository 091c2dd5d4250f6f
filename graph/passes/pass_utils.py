"""Utilities of passes: users of values, boxing steps, and their times and bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import torch

from ...engine import boxing
from ...engine.convert import BOXING
from ...engine.meta import Meta
from ...engine.op import Op
from ...engine.shard_runner import runner
from ..boxing_calls import boxing_calls
from ..ir import Program, ProgramStep, Run, Value


def uses(program: Program) -> Counter[int]:
    """How often each value is wanted at the end or read by steps with uses, by number."""
    found = Counter(value.number for value in program.wanted())
    for step in reversed(program.steps):
        if any(found[value.number] for value in step.outputs):
            found.update(value.number for value in step.reads())
    return found


def is_boxing(step: ProgramStep | None) -> bool:
    """Whether the step is a boxing that may be merged with others (those of ZeRO may not)."""
    return step is not None and step.origin is BOXING and step.repeatable


def box(value: Value, made: Value, near: ProgramStep) -> ProgramStep:
    """A boxing of `value` to `made`, with the module and stage of `near`."""
    return replace(
        near, name="boxing", origin=BOXING, inputs=(value,), attrs=(), outputs=(made,),
        several=False, repeatable=True, op=None, asked=False, offloaded=near.offloaded[:1],
        **boxing_calls(value.meta, made.meta, near.name),
    )  # fmt: skip


def run_of(
    op: Op, inputs: tuple[Meta | None, ...], outputs: tuple[Meta, ...], attrs: tuple[object, ...]
) -> Run:
    """The function that runs an op on shards of values with these metas."""
    return runner(op, inputs, outputs, attrs, outputs[0].placement)[0]


def relaid(
    step: ProgramStep, inputs: tuple[object, ...], outputs: tuple[Value, ...]
) -> ProgramStep:
    """The step on inputs and outputs in other layouts, which must be legal for its op."""
    step = replace(step, inputs=inputs, outputs=outputs)
    assert step.op is not None
    return replace(step, run=run_of(step.op, step.input_metas, step.output_metas, step.attrs))


def together(a: ProgramStep, b: ProgramStep) -> bool:
    """Whether two steps are in one stage and one recomputation, or in none."""
    return a.stage == b.stage and a.recomputation == b.recomputation


def same_segment(a: ProgramStep, b: ProgramStep) -> bool:
    """Whether two steps are in one stage, one recomputation and one direction."""
    return together(a, b) and a.backward == b.backward


@lru_cache(1 << 14)
def time(src: Meta, dst: Meta) -> float:
    """Modeled seconds of a boxing."""
    return 0.0 if src is dst else boxing.plan(src, dst).time


def received(src: Meta, dst: Meta) -> int:
    """Bytes that all ranks together receive in a boxing."""
    if src is dst:
        return 0
    assert src.placement is not None and dst.placement is not None
    plan = boxing.plan(src, dst)
    ranks = {*src.placement.flat_ranks, *dst.placement.flat_ranks}
    return sum(plan.received(rank) for rank in ranks)


def same_bits(*metas: Meta) -> bool:
    """Whether boxing through these layouts gives the bits of boxing directly to the last one.

    Splits and copies always do. Sums along one axis are in rank order in every boxing, but with
    NCCL; along several, or between placements, the order depends on the way. A zero added to -0.0
    changes its sign, and how a value is cut into addends is part of the result.
    """
    first = metas[0]
    partial_somewhere = any(sbp.is_partial for meta in metas for sbp in meta.nd_sbp)
    if not partial_somewhere:
        return True
    if first.placement is None or any(meta.placement is not first.placement for meta in metas):
        return False
    combined = 0
    for axis, parts in enumerate(first.placement.shape):
        if parts == 1:
            continue
        along = [meta.nd_sbp[axis] for meta in metas]
        if not all(new is old or not new.is_partial for old, new in pairwise(along)):
            return False
        if along[0].is_partial and along[-1] is not along[0]:
            combined += 1
            if first.placement.type == "cuda" and parts > 2 and is_inexact(first.dtype):
                return False
    return combined <= 1 or not is_inexact(first.dtype)


def is_inexact(dtype: torch.dtype) -> bool:
    """Whether sums depend on the order of the addends."""
    return dtype.is_floating_point or dtype.is_complex
