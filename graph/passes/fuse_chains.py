"""Fuses chains of pointwise steps with the product before and the reduction after them.

Applies where Triton does the work. Each value is rounded as in its own step, so no bit changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ...engine.meta import Meta
from ...engine.op import Kernel, Local, Op
from ...engine.ops.matmul import Linear, Product
from ...engine.shard_runner import runner, single
from ...kernels import epilogue_ref as epilogue, pointwise_chain_ref as kernels
from ...kernels.pointwise_chain_ref import At, Chain, Link
from ...kernels.select import pick, uses_triton
from ..ir import Program, ProgramStep, Value
from ..memory_traffic import read_and_written, readable
from .fusion_groups import Group, Groups, is_pointwise
from .pass_utils import uses


class Fused(Op):
    """The outputs of a chain."""

    name = "fused"

    def __init__(self, chain: Chain, steps: tuple[ProgramStep, ...]) -> None:
        self.chain = chain
        self.steps = steps  # what it stands for
        self.num_outputs = len(chain.outputs)

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        if self.num_outputs == 1:
            return local.pick(kernels.one)(self.chain)  # type: ignore[no-any-return]
        return local.pick(kernels.several)(self.chain)  # type: ignore[no-any-return]


class FusedReduction(Fused):
    """A reduction of what a chain gives, and (where it is `kept`) that itself."""

    def __init__(self, chain: Chain, steps: tuple[ProgramStep, ...], kept: bool) -> None:
        super().__init__(chain, steps)
        self.kept = kept
        self.num_outputs = 1 + kept

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        last = self.steps[-1]
        (value,) = last.reads()
        assert last.op is not None
        reduction = last.op.bind(
            replace(local, inputs=(value.meta,), outputs=local.outputs[:1]), last.attrs
        )
        compute = local.pick(kernels.as_prologue)(self.chain, self.kept)

        def run(*tensors: Any) -> Any:
            prologue, whole = compute(*tensors)
            return reduction(prologue), whole

        return run if self.kept else lambda *tensors: reduction(compute(*tensors)[0])


class FusedEpilogue(Fused):
    """A chain that takes a matrix product, and (where it is `kept`) the product."""

    def __init__(
        self, chain: Chain, steps: tuple[ProgramStep, ...], operands: int, kept: bool
    ) -> None:
        super().__init__(chain, steps)
        self.operands = operands
        self.kept = kept
        self.num_outputs = 1 + kept

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        product = self.steps[0].op
        assert isinstance(product, (Linear, Product))
        with_epilogue = local.pick(epilogue.with_epilogue)
        return with_epilogue(product.reference, self.operands, self.chain, self.kept)  # type: ignore[no-any-return]


def fuse_chains(program: Program) -> Program:
    """The program with one step for each group of pointwise steps, where Triton does the work.

    Steps that stay alone say why in their note, and those that are fused what they save.
    """
    if not any(is_pointwise(step) and _on_triton(step) for step in program.steps):
        return program
    groups = Groups(program.steps, uses(program), _refusal)
    fused = {}
    gone = set()
    for group in groups.found():
        fused[group.members[-1]] = _fused(groups, group)
        gone.update(group.indices)
    steps = [
        fused.get(index) or _with_note(groups, index, step)
        for index, step in enumerate(program.steps)
        if index in fused or index not in gone
    ]
    return replace(program, steps=steps)


def _on_triton(step: ProgramStep) -> bool:
    meta = step.outputs[0].meta
    return uses_triton(Local(0, (), (meta,), meta.placement).device_type)


def _refusal(step: ProgramStep) -> str:
    """Why a pointwise step cannot be a part of a kernel, "" if it can."""
    if not _on_triton(step):
        return "not on a GPU"
    assert step.op is not None
    if any(value is None for value in step.inputs):
        return "no pointwise kernel"
    args = [_stand_in(v.meta) if type(v) is Value else v for v in step.inputs]
    why = pick(kernels.why_not, "cuda")
    return why(step.op.kernel, (*args, *step.attrs))  # type: ignore[no-any-return]


def _stand_in(meta: Meta) -> torch.Tensor:
    return torch.ones((0,) if meta.shape else (), dtype=meta.dtype)


def _with_note(groups: Groups, index: int, step: ProgramStep) -> ProgramStep:
    if not is_pointwise(step):
        return step
    why = groups.why.get(index, "no pointwise step beside it")
    return replace(step, note=f"not fused: {why}")


def _fused(groups: Groups, group: Group) -> ProgramStep:
    """The step that does what a group does."""
    steps = tuple([groups.steps[member] for member in group.members])
    inputs, outputs = groups.inputs(group), groups.outputs(group)
    if group.product is not None:
        return _with_epilogue(groups.steps[group.product], steps, inputs, outputs)
    links, number = _links(steps, inputs)
    if group.reduction is None:
        chain = Chain(len(inputs), links, tuple([number[v.number] for v in outputs]))
        return _step(Fused(chain, steps), inputs, tuple(outputs))
    reduction, (last,) = groups.steps[group.reduction], steps[-1].outputs
    chain = Chain(len(inputs), links, (number[last.number],))
    kept = groups.uses[last.number] > 1
    return _step(
        FusedReduction(chain, (*steps, reduction), kept), inputs, (*reduction.outputs, *outputs)
    )


def _links(
    steps: Sequence[ProgramStep], inputs: Sequence[Value]
) -> tuple[tuple[Link, ...], dict[int, int]]:
    """The links that steps are, and the numbers in the chain of values, by their own numbers."""
    number = {value.number: at for at, value in enumerate(inputs)}
    links = []
    for step in steps:
        assert step.op is not None
        arguments = [At(number[v.number]) if type(v) is Value else v for v in step.inputs]
        links.append(Link(step.op.kernel, (*arguments, *step.attrs)))
        number[step.outputs[0].number] = len(number)
    return tuple(links), number


def _with_epilogue(
    product: ProgramStep,
    steps: tuple[ProgramStep, ...],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
) -> ProgramStep:
    (made,), operands = product.outputs, tuple(product.reads())
    links, number = _links(steps, [made, *inputs])
    (last,) = [value for value in outputs if value is not made]
    chain = Chain(1 + len(inputs), links, (number[last.number],))
    kept = made in outputs
    op = FusedEpilogue(chain, (product, *steps), len(operands), kept)
    return _step(op, [*operands, *inputs], (last, made) if kept else (last,))


def _step(op: Fused, inputs: Sequence[Value], outputs: tuple[Value, ...]) -> ProgramStep:
    last = op.steps[-1]
    metas, made = tuple([v.meta for v in inputs]), tuple([v.meta for v in outputs])
    placement = made[0].placement
    run: Callable[..., Any]
    if placement is None:
        run = single(op, Local(0, metas, made, None), ())
    else:
        run = runner(op, metas, made, (), placement)
    step = replace(
        last, name=op.name, origin=op, inputs=tuple(inputs), attrs=(), outputs=outputs, run=run,
        several=len(outputs) > 1, aliases=False, op=None, parts=op.steps,
    )  # fmt: skip
    before, after = (sum(map(read_and_written, some)) for some in (op.steps, (step,)))
    names = ", ".join(each.name for each in op.steps)
    return replace(step, note=f"{names}: {readable(after)}, not {readable(before)}")
