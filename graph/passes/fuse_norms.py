"""Fuses norms and their gradients with the pointwise steps before and after them.

Applies where Triton does the work. Runs after the fusion of chains, which decides whether an
addition is done by the product before it or by the norm. Each value is rounded as in its own step,
so no bit changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ...engine.meta import Meta
from ...engine.op import Kernel, Local
from ...kernels import norm_chain_ref as kernels
from ...kernels.norm_chain_ref import MAX_AFTER, MAX_BEFORE, MAX_EXTRA, NORMS, NormChain
from ...kernels.pointwise_chain_ref import At, Chain
from ..ir import Program, ProgramStep, Value
from .fuse_chains import Fused, chain_of, fused_step, on_triton, why_not_fused
from .fusion_groups import is_norm, is_pointwise
from .pass_utils import same_segment


class FusedNorm(Fused):
    """A norm between chains."""

    def __init__(self, chain: NormChain, steps: tuple[ProgramStep, ...], outputs: int) -> None:
        self.norm = chain
        self.steps = steps
        self.num_outputs = outputs

    def bind(self, local: Local, attrs: tuple[object, ...]) -> Kernel:
        run: Kernel = local.pick(kernels.with_chains)(self.norm)
        return run if self.num_outputs > 1 else lambda *tensors: run(*tensors)[0]


def fuse_norms(program: Program) -> Program:
    """The program with one step for each norm and its neighboring pointwise steps."""
    if not any(_is_norm(step) for step in program.steps):
        return program
    order = _Order(program)
    fused: dict[ProgramStep, ProgramStep] = {}  # by the step in whose place it is
    gone: set[ProgramStep] = set()
    for step in program.steps:
        if not _is_norm(step):
            continue
        before, after = order.before(step, gone), order.after(step, gone)
        last = step if after is None else after
        if before is not None and not order.may_wait(before, step, last):
            before = None
        if before is None and after is None:
            continue
        gone.update(each for each in (before, step, after) if each is not None)
        fused[last] = _fused(order, before, step, after)
    steps = [fused.get(step, step) for step in program.steps if step in fused or step not in gone]
    return replace(program, steps=steps)


class _Order:
    """The makers and the readers of a program's values, and when they run."""

    def __init__(self, program: Program) -> None:
        self.makers = program.makers()
        self.wanted = {value.number for value in program.wanted()}
        self.index = {step: index for index, step in enumerate(program.steps)}
        self.readers: dict[int, list[ProgramStep]] = defaultdict(list)
        for step in program.steps:
            for value in {value.number: value for value in step.reads()}.values():
                self.readers[value.number].append(step)

    def before(self, norm: ProgramStep, gone: set[ProgramStep]) -> ProgramStep | None:
        """The pointwise step that makes a norm's first input, and nothing else."""
        first = norm.inputs[0]
        assert type(first) is Value
        maker = self.makers.get(first.number)
        if maker is None or maker in gone or not may_join(maker, norm, first.meta):
            return None
        many = len({value.number for value in maker.reads()}) > MAX_BEFORE
        return None if many or len(maker.outputs) > 1 else maker

    def after(self, norm: ProgramStep, gone: set[ProgramStep]) -> ProgramStep | None:
        """The pointwise step that reads a norm's first result before all others read any."""
        result = norm.outputs[0]
        readers = [reader for value in norm.outputs for reader in self.readers[value.number]]
        first = min(readers, key=self.index.__getitem__, default=None)
        if first is None or first in gone or result not in tuple(first.reads()):
            return None
        others = {value.number for value in (*norm.outputs[1:], *norm.reads())}
        if not may_join(first, norm, result.meta) or len(first.outputs) > MAX_AFTER:
            return None
        read = {value.number for value in first.reads()} - {result.number}
        return first if len(read) <= MAX_EXTRA and not read & others else None

    def may_wait(self, before: ProgramStep, norm: ProgramStep, last: ProgramStep) -> bool:
        """Whether the producer of a norm's first input can run in place of `last`."""
        (made,) = before.outputs
        others = [step for step in self.readers[made.number] if step is not norm]
        others = [step for step in others if step is not last]
        alone = last is norm or made not in tuple(last.reads())
        return alone and all(self.index[step] > self.index[last] for step in others)

    def is_used(self, value: Value, *steps: ProgramStep | None) -> bool:
        """Whether a value is used by others than these steps."""
        rest = [step for step in self.readers[value.number] if step not in steps]
        return bool(rest) or value.number in self.wanted


def _is_norm(step: ProgramStep) -> bool:
    """Whether the step is a norm, or the gradient of one, that Triton computes."""
    return is_norm(step) and on_triton(step)


def may_join(step: ProgramStep, other: ProgramStep, like: Meta) -> bool:
    """Whether a step is pointwise work on tensors that all lie alike."""
    if not same_segment(step, other):
        return False
    if not (type(step.origin) is Fused or (is_pointwise(step) and not why_not_fused(step))):
        return False
    values = (*step.reads(), *step.outputs)
    return all(_lies_like(value.meta, like) for value in values)


def _lies_like(meta: Meta, like: Meta) -> bool:
    return meta.is_floating and meta.like(dtype=like.dtype) is like


def _fused(
    order: _Order, before: ProgramStep | None, norm: ProgramStep, after: ProgramStep | None
) -> ProgramStep:
    """The fused step."""
    given, result, parts = norm.inputs[0], norm.outputs[0], (before, norm, after)
    assert type(given) is Value
    first = [given] if before is None else _read(before)
    extra = [] if after is None else [v for v in _read(after) if v is not result]
    own = [value for value in norm.inputs[1:] if type(value) is Value]
    tensors = iter(range(len(own)))
    arguments = [At(next(tensors)) if type(v) is Value else v for v in norm.inputs[1:]]
    chain = NormChain(
        NORMS[norm.name],
        (*arguments, *norm.attrs),
        None if before is None else _chain(before, first),
        None if after is None else _chain(after, [result, *extra]),
        after is not None and order.is_used(result, after),
        before is not None and order.is_used(given, norm),
    )
    outputs = [] if after is None else list(after.outputs)
    outputs += norm.outputs[1:]
    outputs += [result] * (after is None or chain.keeps_result) + [given] * chain.keeps_input
    steps = tuple([part for each in parts if each is not None for part in each.parts or (each,)])
    op = FusedNorm(chain, steps, len(outputs))
    return fused_step(op, [*first, *own, *extra], tuple(outputs))


def _read(step: ProgramStep) -> list[Value]:
    return list({value.number: value for value in step.reads()}.values())


def _chain(step: ProgramStep, inputs: Sequence[Value]) -> Chain:
    return chain_of(step.parts or (step,), inputs, step.outputs)
