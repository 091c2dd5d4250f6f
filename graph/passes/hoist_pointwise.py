"""Hoisting: pointwise steps move up to the pointwise step whose value they use up.

Applies where Triton does the work. A step between the two may read that value. The kernel of both
runs before it then, and would otherwise have to run before what the second of them reads is made.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import Program, ProgramStep
from .fuse_chains import refusal
from .fusion_groups import is_pointwise
from .pass_utils import same_segment


def hoist_pointwise(program: Program) -> Program:
    """The program with pointwise steps behind the last step that they read, if it is pointwise.

    Only steps move that make no more bytes than they use up, so no more memory is needed.
    """
    ends = {value.number for value in program.wanted()}
    last = {value.number: step for step in program.steps for value in step.reads()}
    makers = program.makers()
    place: dict[ProgramStep, tuple[int, int]] = {}  # by which the steps are put in order
    for index, step in enumerate(program.steps):
        place[step] = (index, 0)
        before = [makers[v.number] for v in step.reads() if v.number in makers]
        target = max(before, key=place.__getitem__, default=step)
        if not (is_pointwise(step) and is_pointwise(target) and same_segment(step, target)):
            continue
        used_up = {v.number: v for v in step.reads() if last[v.number] is step}
        saved = sum(v.meta.nbytes for n, v in used_up.items() if n in makers and n not in ends)
        ends_here = target.outputs[0].number in used_up
        if ends_here and saved >= step.outputs[0].meta.nbytes and not refusal(step):
            place[step] = (place[target][0], index)
    return replace(program, steps=sorted(program.steps, key=place.__getitem__))
