"""Accumulating gradients of embeddings: rows are added to a gradient that is there already.

The weight of an embedding is often that of the last layer, too. Its gradient is then a whole matrix
and a few rows, which need no matrix of their own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ...engine.op import Kernel, Local
from ...engine.ops.embedding import EmbeddingGrad, EmbeddingGradAttributes
from ...kernels import gather_scatter_ref as kernels
from ..ir import Program, ProgramStep, Value
from .accumulate_products import Accumulating
from .fuse_chains import on_triton
from .in_place import allocates
from .pass_utils import run_of, same_segment, uses


class AddEmbeddingGrad(Accumulating):
    """total[r, h] += sum of dy[..., h] where index[...] is r, in the memory of the total."""

    name = "add_embedding_grad"
    attributes = EmbeddingGradAttributes

    def bind(self, local: Local, attrs: EmbeddingGradAttributes) -> Kernel:
        shape, offset = local.output_shape(), local.output_offset()[0]
        return local.bind(kernels.add_embedding_grad, shape, offset, attrs.padding)


_ADD = AddEmbeddingGrad()


def accumulate_embedding_grads(program: Program) -> Program:
    """The program in which gradients of embeddings are added in place to their only addend.

    Where Triton does the work. The sum of a row is rounded before it is added, as in an addition of
    its own, so no bit changes.
    """
    makers, used = program.makers(), uses(program)
    gone: set[int] = set()  # the numbers of gradients that are no longer made
    steps: list[ProgramStep] = []
    for step in program.steps:
        chosen = _addends(step, makers, used)
        if chosen is not None:
            total, made = chosen
            gone.add(made.outputs[0].number)
            step = makers[step.outputs[0].number] = _added(step, total, made)
        steps.append(step)
    kept = [step for step in steps if not step.outputs or step.outputs[0].number not in gone]
    return replace(program, steps=kept)


def _addends(
    step: ProgramStep, makers: dict[int, ProgramStep], used: Counter[int]
) -> tuple[Value, ProgramStep] | None:
    """The two addends of a step, whose memory may be written, and the producer of the second."""
    values = [*step.reads()]
    if step.name != "add" or step.attrs or len(values) != 2 or len(step.inputs) != 2:
        return None
    for total, other in (values, values[::-1]):
        base, made = makers.get(total.number), makers.get(other.number)
        if base is None or made is None or type(made.op) is not EmbeddingGrad:
            continue
        alike = total.meta is other.meta is step.outputs[0].meta and total is not other
        alone = used[total.number] == used[other.number] == 1 and allocates(base)
        if alike and alone and _is_plain(made) and same_segment(made, step):
            return total, made
    return None


def _is_plain(made: ProgramStep) -> bool:
    """Whether a gradient is a sum in its own dtype, for Triton."""
    by_frequency = made.attrs[-1]
    wide = made.outputs[0].meta.dtype.itemsize >= 4 and made.outputs[0].meta.is_floating
    return wide and not by_frequency and on_triton(made)


def _added(step: ProgramStep, total: Value, made: ProgramStep) -> ProgramStep:
    step = replace(
        made, name=_ADD.name, origin=_ADD, op=_ADD, inputs=(total, *made.inputs),
        outputs=step.outputs, place=total,
    )  # fmt: skip
    return replace(step, run=run_of(_ADD, step.input_metas, step.output_metas, step.attrs))
