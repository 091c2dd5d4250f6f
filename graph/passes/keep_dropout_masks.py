"""Keeps masks of dropout for backward, a byte for each element, as eager mode does on the CPU.

Applies where Triton does not do the work: there it takes about twenty times as long to draw a mask
again. What a checkpointed module draws is kept only when it is recomputed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from ...engine.generator import Draw
from ...engine.ops.dropout import (
    DropoutByMask,
    DropoutKey,
    DropoutOp,
    DropoutWithMask,
    Probability,
    layout_of_mask,
)
from ...kernels.select import uses_triton
from ..ir import Program, ProgramStep, Value
from .pass_utils import run_of

_WITH_MASK, _BY_MASK = DropoutWithMask(), DropoutByMask()


def keep_dropout_masks(program: Program) -> Program:
    """The program in which dropout draws its mask once, and its gradient reads the mask."""
    if uses_triton("cpu"):
        return program
    draws = program.draws.numbers()
    latest: dict[object, ProgramStep] = {}  # by draw and stage
    read: dict[ProgramStep, ProgramStep] = {}  # by a step of backward: the one whose mask it reads
    for step in program.steps:
        if type(step.op) is not DropoutOp or step.outputs[0].meta.device_type != "cpu":
            continue
        key = _draw(step, draws), step.stage
        if not step.backward or step.recomputation:
            latest[key] = step
        elif key in latest and _has_mask_of(step, latest[key]):
            read[step] = latest[key]
    if not read:
        return program
    numbers = program.free_numbers()
    masks = {step: _mask(step, numbers) for step in dict.fromkeys(read.values())}
    steps = []
    for step in program.steps:
        if step in masks:
            step = _keeping(step, masks[step])
        elif step in read:
            step = _reading(step, masks[read[step]])
        steps.append(step)
    return replace(program, steps=steps)


def _draw(step: ProgramStep, draws: dict[Draw, tuple[int, int]]) -> object:
    """What tells the numbers that the step draws from those of others."""
    key = step.inputs[1]
    assert isinstance(key, DropoutKey)
    return draws.get(key.draw, key.draw), key.draw.part, key.p


def _has_mask_of(gradient: ProgramStep, dropout: ProgramStep) -> bool:
    """Whether a step can read the mask of an earlier one, and that one keeps its mask."""
    if dropout.checkpointed:
        return False
    one, two = (each.outputs[0].meta for each in (gradient, dropout))
    alike = one.shape == two.shape and one.placement is two.placement and one.device == two.device
    return alike and layout_of_mask(one.nd_sbp) == layout_of_mask(two.nd_sbp)


def _mask(dropout: ProgramStep, numbers: Iterator[int]) -> Value:
    (made,) = dropout.outputs
    meta = made.meta.like(dtype=torch.bool, nd_sbp=layout_of_mask(made.meta.nd_sbp))
    mask = Value(next(numbers), meta)
    mask.scope, mask.line = made.scope, made.line
    return mask


def _keeping(dropout: ProgramStep, mask: Value) -> ProgramStep:
    outputs = (*dropout.outputs, mask)
    made = replace(
        dropout, name=_WITH_MASK.name, origin=_WITH_MASK, op=_WITH_MASK, outputs=outputs,
        several=True, offloaded=dropout.offloaded * 2,
    )  # fmt: skip
    return replace(made, run=run_of(_WITH_MASK, made.input_metas, made.output_metas, made.attrs))


def _reading(gradient: ProgramStep, mask: Value) -> ProgramStep:
    dy, key = gradient.inputs
    assert isinstance(key, DropoutKey)
    made = replace(
        gradient, name=_BY_MASK.name, origin=_BY_MASK, op=_BY_MASK, inputs=(dy, mask),
        attrs=Probability(key.p),
    )  # fmt: skip
    return replace(made, run=run_of(_BY_MASK, made.input_metas, made.output_metas, made.attrs))
