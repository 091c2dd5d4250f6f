"""Fuses dropout with the pointwise steps that follow it, such as a cast and a residual.

Applies where Triton does the work. Each value is rounded as in its own step, so no bit changes.
"""

from __future__ import annotations

from dataclasses import replace

from ...engine.op import Kernel, Local
from ...engine.ops.dropout import DropoutKey, DropoutOp
from ...kernels import dropout_chain_ref as kernels
from ...kernels.dropout_chain_ref import MAX_EXTRA
from ...kernels.pointwise_chain_ref import Chain
from ..ir import Program, ProgramStep, Value
from .fuse_chains import Fused, chain_of, fused_step, on_triton
from .fuse_norms import may_join
from .pass_utils import uses


class FusedDropout(Fused):
    """A chain on the result of dropout; the last input is the draw."""

    def __init__(self, chain: Chain, steps: tuple[ProgramStep, ...]) -> None:
        super().__init__(chain, steps)

    def bind(self, local: Local, attrs: tuple[object, ...]) -> Kernel:
        x = local.input(0)
        shape, offset = tuple(x.shape), local.input_offset(0)
        compute = local.pick(kernels.with_chain)(self.chain)

        def kernel(*inputs: object) -> object:
            *tensors, key = inputs
            assert isinstance(key, DropoutKey)
            draw = key.draw
            whole, start = draw.within(shape, offset)
            seed, call = draw.key
            return compute(*tensors, shape=whole, offset=start, p=key.p, seed=seed, call=call)

        return kernel


def fuse_dropout(program: Program) -> Program:
    """The program with one step for each dropout and the pointwise step that is its only reader."""
    used = uses(program)
    dropped = {step.outputs[0].number: step for step in program.steps if _drops(step, used)}
    gone: set[ProgramStep] = set()
    steps = []
    for step in program.steps:
        found = [dropped[value.number] for value in step.reads() if value.number in dropped]
        if len(found) == 1 and _follows(step, found[0]):
            gone.add(found[0])
            step = _fused(found[0], step)
        steps.append(step)
    return replace(program, steps=[step for step in steps if step not in gone])


def _drops(step: ProgramStep, used: dict[int, int]) -> bool:
    """Whether the step is dropout of floating numbers that one step reads."""
    if type(step.op) is not DropoutOp or used[step.outputs[0].number] != 1:
        return False
    return step.outputs[0].meta.is_floating and on_triton(step)


def _follows(step: ProgramStep, dropout: ProgramStep) -> bool:
    """Whether a step is pointwise work on the result of dropout, with one result."""
    extra = {value.number for value in step.reads()} - {dropout.outputs[0].number}
    few = len(extra) <= MAX_EXTRA and len(step.outputs) == 1
    return few and may_join(step, dropout, dropout.outputs[0].meta)


def _fused(dropout: ProgramStep, step: ProgramStep) -> ProgramStep:
    (made,), (x, key) = dropout.outputs, dropout.inputs
    assert type(x) is Value
    read = {value.number: value for value in step.reads()}.values()
    extra = [value for value in read if value is not made]
    chain = chain_of(step.parts or (step,), [made, *extra], step.outputs)
    op = FusedDropout(chain, (dropout, *(step.parts or (step,))))
    return fused_step(op, [x, *extra, key], step.outputs)
