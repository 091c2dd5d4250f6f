"""Fuses chains of pointwise steps with the product before and the reduction after them.

Applies where Triton does the work. Each value is rounded as in its own step, so no bit changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from ...engine.meta import Meta
from ...engine.op import Kernel, Local, Op
from ...engine.ops.matmul import MatrixOp
from ...kernels import epilogue_ref as epilogue, pointwise_chain_ref as kernels
from ...kernels.pointwise_chain_ref import At, Chain, Link
from ...kernels.select import pick, uses_triton
from ..ir import Program, ProgramStep, Value
from ..memory_traffic import read_and_written, readable
from .fusion_groups import Group, Groups, is_pointwise
from .pass_utils import run_of, uses


class Fused(Op):
    """The outputs of a chain."""

    name = "fused"

    def __init__(self, chain: Chain, steps: tuple[ProgramStep, ...], kept: bool = False) -> None:
        self.chain = chain
        self.steps = steps  # what it stands for
        self.kept = kept  # whether a value between the chain and its neighbor is an output
        self.num_outputs = len(chain.outputs) + kept

    def bind(self, local: Local, attrs: tuple[object, ...]) -> Kernel:
        make = kernels.one if self.num_outputs == 1 else kernels.several
        picked = local.pick(make)
        return local.around(picked, picked(self.chain))


class FusedReduction(Fused):
    """A reduction of a chain's output, and the output itself if it is `kept`."""

    def bind(self, local: Local, attrs: tuple[object, ...]) -> Kernel:
        last = self.steps[-1]
        assert last.op is not None
        reduction = last.op.bind(
            replace(local, inputs=(last.source.meta,), outputs=local.outputs[:1]), last.attrs
        )
        picked = local.pick(kernels.as_prologue)
        compute = picked(self.chain, self.kept)

        def run(*tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            prologue, whole = compute(*tensors)
            return reduction(prologue), whole

        def alone(*tensors: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = reduction(compute(*tensors)[0])
            return y

        return local.around(picked, run if self.kept else alone)


class FusedEpilogue(Fused):
    """A chain on a matrix product, and the product if it is `kept`."""

    def bind(self, local: Local, attrs: tuple[object, ...]) -> Kernel:
        product = self.steps[0]
        assert isinstance(product.op, MatrixOp)
        operands = len(tuple(product.reads()))
        with_epilogue = local.pick(epilogue.with_epilogue)
        made = with_epilogue(product.op.reference, operands, self.chain, self.kept)
        return local.around(with_epilogue, made)


def fuse_chains(program: Program) -> Program:
    """The program with one step for each group of pointwise steps, where Triton does the work.

    The note of a fused step says what fusion saves, that of another step why it is not fused.
    """
    if not any(is_pointwise(step) and on_triton(step) for step in program.steps):
        return program
    groups = Groups(program.steps, uses(program), why_not_fused)
    fused = {}
    gone = set()
    for group in groups.found():
        fused[group.members[-1]] = _fused(groups, group)
        gone.update(group.indices)
    gone.update(groups.waiting.values())
    steps = []
    for index, step in enumerate(program.steps):
        if index in groups.waiting:
            steps.append(program.steps[groups.waiting[index]])
        if index in fused or index not in gone:
            steps.append(fused.get(index) or _with_note(groups, index, step))
    return replace(program, steps=steps)


def on_triton(step: ProgramStep) -> bool:
    """Whether Triton kernels do the work where a step runs."""
    meta = step.outputs[0].meta
    return uses_triton(Local(0, (), (meta,), meta.placement).device_type)


def why_not_fused(step: ProgramStep) -> str:
    """Why a pointwise step cannot be a part of a kernel, "" if it can."""
    if not on_triton(step):
        return "not on a GPU"
    assert step.op is not None
    if any(value is None for value in step.inputs):
        return "no pointwise kernel"
    args = [_stand_in(v.meta) if type(v) is Value else v for v in step.inputs]
    why = pick(kernels.why_not, "cuda")
    return str(why(step.op.kernel, (*args, *step.attrs)))


def _stand_in(meta: Meta) -> torch.Tensor:
    return torch.ones((0,) if meta.shape else (), dtype=meta.dtype, device="cpu")


def _with_note(groups: Groups, index: int, step: ProgramStep) -> ProgramStep:
    if not is_pointwise(step):
        return step
    why = groups.why.get(index, "no pointwise step next to it")
    return replace(step, note=f"not fused: {why}")


def _fused(groups: Groups, group: Group) -> ProgramStep:
    """The fused step of a group."""
    steps = tuple([groups.steps[member] for member in group.members])
    inputs, outputs = groups.inputs(group), groups.outputs(group)
    if group.product is not None:
        return _with_epilogue(groups.steps[group.product], steps, inputs, outputs)
    if group.reduction is None:
        return fused_step(Fused(chain_of(steps, inputs, outputs), steps), inputs, tuple(outputs))
    reduction, (last,) = groups.steps[group.reduction], steps[-1].outputs
    kept = groups.uses[last.number] > 1
    op = FusedReduction(chain_of(steps, inputs, [last]), (*steps, reduction), kept)
    return fused_step(op, inputs, (*reduction.outputs, *outputs))


def chain_of(
    steps: Sequence[ProgramStep], inputs: Sequence[Value], outputs: Sequence[Value]
) -> Chain:
    """The steps as links of a chain, from these values to those."""
    number = {value.number: at for at, value in enumerate(inputs)}  # in the chain, by their own
    links = []
    for step in steps:
        assert step.op is not None
        arguments = [At(number[v.number]) if type(v) is Value else v for v in step.inputs]
        links.append(Link(step.op.kernel, (*arguments, *step.attrs)))
        number[step.outputs[0].number] = len(number)
    return Chain(len(inputs), tuple(links), tuple([number[v.number] for v in outputs]))


def _with_epilogue(
    product: ProgramStep,
    steps: tuple[ProgramStep, ...],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
) -> ProgramStep:
    (made,), operands = product.outputs, tuple(product.reads())
    (last,) = [value for value in outputs if value is not made]
    chain, kept = chain_of(steps, [made, *inputs], [last]), made in outputs
    op = FusedEpilogue(chain, (product, *steps), kept)
    return fused_step(op, [*operands, *inputs], (last, made) if kept else (last,))


def fused_step(op: Fused, inputs: Sequence[object], outputs: tuple[Value, ...]) -> ProgramStep:
    """The step of an op that replaces several."""
    last = op.steps[-1]
    metas = tuple([v.meta if type(v) is Value else None for v in inputs])
    run = run_of(op, metas, tuple([v.meta for v in outputs]), ())
    step = replace(
        last, name=op.name, origin=op, inputs=tuple(inputs), attrs=(), outputs=outputs,
        run=run, several=len(outputs) > 1, aliases=False, op=None, parts=op.steps,
        offloaded=_offloaded(op.steps, outputs),
    )  # fmt: skip
    before, after = (sum(map(read_and_written, some)) for some in (op.steps, (step,)))
    names = ", ".join(each.name for each in op.steps)
    return replace(step, note=f"{names}: {readable(after)}, not {readable(before)}")


def _offloaded(steps: Sequence[ProgramStep], outputs: Sequence[Value]) -> tuple[bool, ...]:
    """Which outputs of steps are of modules that keep activations on the host."""
    numbers = {
        value.number
        for step in steps
        for value, offloaded in zip(step.outputs, step.offloaded, strict=False)
        if offloaded
    }
    return tuple([value.number in numbers for value in outputs]) if numbers else ()
