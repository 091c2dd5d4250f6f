"""Fuses the sums of a norm's gradient with the pointwise steps that make what is summed.

The norms are batch norm, and group norm, whose sums are of the channels of each sample.

Applies where Triton does the work, after the fusion of chains. Each value is rounded as in its own
step, so no bit changes.
"""

from __future__ import annotations

from dataclasses import replace

from ...engine.op import Kernel, Local
from ...kernels import channel_chain_ref as kernels
from ...kernels.channel_chain_ref import MAX_TENSORS, MAX_VECTORS, ChannelChain
from ..ir import Program, ProgramStep, Value
from .fuse_chains import Fused, chain_of, fused_step, why_not_fused
from .fusion_groups import is_pointwise, lies_alike
from .norm_sums import NormSums
from .pass_utils import same_segment, uses


class FusedSums(Fused):
    """The sums over channels of a chain's output, and the output itself if it is `kept`."""

    def __init__(self, made: ChannelChain, steps: tuple[ProgramStep, ...]) -> None:
        self.made = made
        self.steps = steps
        self.num_outputs = (4 if made.size else 2) + made.kept

    def bind(self, local: Local, attrs: tuple[object, ...]) -> Kernel:
        picked = local.pick(kernels.with_chain)
        return local.around(picked, picked(self.made))


def fuse_channel_sums(program: Program) -> Program:
    """The program with one step for each pair of sums and the pointwise step before it."""
    makers, used = program.makers(), uses(program)
    index = {step: at for at, step in enumerate(program.steps)}
    fused: dict[ProgramStep, ProgramStep] = {}  # by the pointwise step
    gone: set[ProgramStep] = set()
    for step in program.steps:
        sums = NormSums.of(step)
        if sums is None:
            continue
        maker = makers.get(sums.dy.number)
        if maker is None or maker in fused or not _may_join(maker, step):
            continue
        others = [*step.reads()][1:]
        known = [makers[value.number] for value in others if value.number in makers]
        if all(index[each] < index[maker] for each in known):
            made = _fused(maker, sums, used[sums.dy.number] > 1)
            if made is not None:
                fused[maker] = made
                gone.add(step)
    steps = [fused.get(step, step) for step in program.steps if step not in gone]
    return replace(program, steps=steps)


def _may_join(maker: ProgramStep, sums: ProgramStep) -> bool:
    """Whether a step is pointwise work with one result, next to the sums."""
    pointwise = type(maker.origin) is Fused or (is_pointwise(maker) and not why_not_fused(maker))
    return pointwise and len(maker.outputs) == 1 and same_segment(maker, sums)


def _fused(maker: ProgramStep, sums: NormSums, kept: bool) -> ProgramStep | None:
    """The fused step; None if it would read too much, or tensors with other strides."""
    x, mean, rstd, weight = sums.x, sums.mean, sums.rstd, sums.weight
    tensors: dict[int, Value] = {}
    vectors: dict[int, Value] = {}
    for value in maker.reads():
        if value in (x, mean, rstd):
            continue
        if not (lies_alike(value.meta, x.meta) or sums.is_vector(value)):
            return None
        (tensors if lies_alike(value.meta, x.meta) else vectors)[value.number] = value
    if not 0 < len(tensors) <= MAX_TENSORS or len(vectors) > MAX_VECTORS:
        return None
    inputs = [*tensors.values(), x, mean, rstd, *vectors.values()]
    steps = maker.parts or (maker,)
    chain = chain_of(steps, inputs, maker.outputs)
    given = inputs if weight is None or weight in inputs else [*inputs, weight]
    at = None if weight is None else given.index(weight)
    op = FusedSums(ChannelChain(chain, len(tensors), kept, sums.size, at), (*steps, sums.step))
    return fused_step(op, given, (*sums.step.outputs, *([sums.dy] if kept else [])))
