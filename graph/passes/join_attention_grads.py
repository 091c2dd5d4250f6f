"""Joins the gradients of queries, keys and values where attention's gradient writes them.

One projection for all three has one gradient, in which they are side by side. Applies where Triton
does the work; no bit changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from ...engine.op import Kernel, Local
from ...engine.ops.attention import AttentionAttributes, AttentionGrad, bound
from ...engine.ops.cat_split import Cat
from ...kernels import attention_ref as kernels
from ..ir import Program, ProgramStep, Value
from .fuse_chains import Fused, fused_step, on_triton
from .pass_utils import same_segment, uses


class JoinedGrad(Fused):
    """Attention's gradients side by side in this order."""

    num_outputs = 1

    def __init__(self, places: tuple[int, ...], steps: tuple[ProgramStep, ...]) -> None:
        self.places = places
        self.steps = steps

    def bind(self, local: Local, attrs: tuple[object, ...]) -> Kernel:
        own = AttentionAttributes(*cast(tuple[bool, float, int], self.steps[0].attrs))
        return bound(local.pick(kernels.attention_grad_joined), local, 1, own, self.places)


def join_attention_grads(program: Program) -> Program:
    """The program with one step for each gradient of attention whose results are joined."""
    if not any(isinstance(step.op, AttentionGrad) for step in program.steps):
        return program
    makers, used = program.makers(), uses(program)
    fused: dict[ProgramStep, ProgramStep] = {}
    gone: set[ProgramStep] = set()
    for step in program.steps:
        parts = _parts(step, makers) if isinstance(step.op, Cat) else None
        if parts is None:
            continue
        grad, turned, views = parts[0], parts[1:4], parts[4:]
        alone = all(used[value.number] == 1 for part in parts for value in part.outputs)
        if not alone or not all(same_segment(part, step) for part in parts) or not on_triton(grad):
            continue
        order = tuple([_place(grad, each) for each in turned])
        if sorted(order) != [0, 1, 2] or not _lie_side_by_side(turned, views, step):
            continue
        gone.update((*parts, step))
        op = JoinedGrad(order, (*parts, step))
        fused[step] = fused_step(op, grad.inputs, step.outputs)
    steps = [fused.get(step, step) for step in program.steps if step in fused or step not in gone]
    return replace(program, steps=steps)


def _parts(cat: ProgramStep, makers: dict[int, ProgramStep]) -> tuple[ProgramStep, ...] | None:
    """The gradient of attention, then the transposes of its results, and their views."""
    joined = [value for value in cat.inputs if type(value) is Value]
    if len(joined) != 3 or len(cat.inputs) != 3:  # an absent tensor stands for zeros
        return None
    views = [makers.get(value.number) for value in joined]
    turned = [_behind(view, "view", makers) for view in views]
    grads = {_behind(each, "transpose", makers) for each in turned}
    grad = grads.pop()
    if grads or grad is None or not isinstance(grad.op, AttentionGrad):
        return None
    return (grad, *[part for part in (*turned, *views) if part is not None])


def _behind(
    step: ProgramStep | None, name: str, makers: dict[int, ProgramStep]
) -> ProgramStep | None:
    """The producer of a step's input, if it has that name."""
    return makers.get(step.source.number) if step is not None and step.name == name else None


def _place(grad: ProgramStep, transpose: ProgramStep) -> int:
    """Which of the gradient's results is transposed."""
    return [value.number for value in grad.outputs].index(transpose.source.number)


def _lie_side_by_side(
    turned: Sequence[ProgramStep], views: Sequence[ProgramStep], cat: ProgramStep
) -> bool:
    """Whether heads and features of each result become one dim, the last, which is not split."""
    joined = cat.outputs[0].meta
    if joined.ndim != 3 or cat.attrs[0] != 2:
        return False
    for transpose, view in zip(turned, views, strict=True):
        batch, heads, length, features = transpose.source.meta.shape
        made = view.outputs[0].meta
        if transpose.attrs != (1, 2):
            return False
        if made.shape != (batch, length, heads * features) or made.nd_sbp != joined.nd_sbp:
            return False
    return not any(sbp.is_split and sbp.dim == 2 for sbp in joined.nd_sbp)
