"""Accumulating products: a matrix product adds a weight's gradient to its sum over micro-batches.

This saves writing the gradient, and reading it again to add it. As Megatron-LM's gradient
accumulation fusion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from ...engine.meta import Meta
from ...engine.op import Kernel, Local, Op
from ...engine.ops.cast import Cast
from ...engine.ops.matmul import MatrixOp
from ...kernels import accumulate_ref as kernels, matmul_ref as products
from ..ir import Program, ProgramStep, Value
from .fuse_chains import on_triton
from .pass_utils import run_of, same_segment, uses

PRODUCTS = (products.mm, products.mm_nt, products.mm_tn, products.rows_tn)


class Accumulating(Op):
    """An op that adds to the input `ProgramStep.place`, always in the memory of that."""


class Accumulate(Accumulating):
    """sum + a product of matrices, in the sum's memory; the product alone where no sum is given."""

    def __init__(self, product: MatrixOp) -> None:
        self.name = f"accumulate_{product.name}"
        self.product = product

    def bind(self, local: Local, attrs: tuple[object, ...]) -> Kernel:
        accumulate = local.pick(kernels.accumulate)
        return local.around(accumulate, accumulate(self.product.reference, local.outputs[0].dtype))

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        return self.product.flops(inputs[:2], outputs)


@lru_cache
def _accumulating(product: MatrixOp) -> Accumulate:
    """The op of a product, one object for each product, by which equal steps are recognized."""
    return Accumulate(product)


def gradients(program: Program) -> list[Value]:
    """The values that micro-batches without stages add up."""
    return [value for _, value in program.gradients]


def accumulate_products(
    program: Program, added: Callable[[Program], Sequence[Value]] = gradients
) -> Program:
    """The program of a micro-batch whose products add to the values that are `added` up.

    Where Triton does the work, and for values that are a product, or a sum of several, perhaps
    in another dtype, which are not read before they are added. The sum has the products as they
    are before they are rounded, so its last digits differ from those of an addition of its own.
    """
    makers, used = program.makers(), uses(program)
    place = {id(step): at for at, step in enumerate(program.steps)}
    numbers = program.free_numbers()
    made: dict[int, ProgramStep] = {}  # instead of a product, by its identity
    gone: set[int] = set()  # identities of casts and additions
    carried: list[tuple[Value, Value]] = []
    for gradient in added(program):
        tree = _tree(gradient, makers, used)
        leaves = [step for step in tree if isinstance(step.op, MatrixOp)]
        if not leaves or not all(same_segment(step, leaves[0]) for step in leaves):
            continue
        leaves.sort(key=lambda step: place[id(step)])
        total = Value(next(numbers), gradient.meta, f"{gradient.number}.sum")
        carried.append((total, gradient))
        for step in leaves:
            last = gradient if step is leaves[-1] else Value(next(numbers), gradient.meta)
            made[id(step)] = _accumulated(step, total, last)
            total = last
        gone.update(map(id, tree))
    steps = [
        made.get(id(step), step)
        for step in program.steps
        if id(step) in made or id(step) not in gone
    ]
    return replace(program, steps=steps, carried=carried)


def begun(program: Program, steps: Sequence[ProgramStep]) -> Sequence[ProgramStep]:
    """The steps for the first micro-batch, which has no sums to add to."""
    carried = {value.number for value, _ in program.carried}
    begin = [step.place is not None and step.place.number in carried for step in steps]
    if not any(begin):
        return steps
    return [_begun(step) if its else step for step, its in zip(steps, begin, strict=True)]


def _begun(step: ProgramStep) -> ProgramStep:
    op, inputs = step.op, step.inputs[:2]
    assert isinstance(op, Accumulate)
    step = replace(step, inputs=inputs, place=None)
    return replace(step, run=run_of(op, step.input_metas, step.output_metas, ()))


def _tree(gradient: Value, makers: dict[int, ProgramStep], used: Counter[int]) -> list[ProgramStep]:
    """The products whose sum a gradient is, with the casts and additions between them.

    Empty if it is anything else, or if one of the values is of use elsewhere.
    """
    found: list[ProgramStep] = []
    left = [gradient]
    while left:
        value = left.pop()
        step = makers.get(value.number)
        if step is None or used[value.number] != 1 or not _alike(value.meta, gradient.meta):
            return []
        found.append(step)
        if isinstance(step.op, Cast) or _adds(step):
            left += step.reads()
        elif not _is_product(step):
            return []
    return found


def _alike(meta: Meta, gradient: Meta) -> bool:
    return _is_real(meta) and meta.like(dtype=gradient.dtype) is gradient


def _is_real(meta: Meta) -> bool:
    """Whether Triton has products of this dtype with results in another dtype."""
    return meta.dtype.is_floating_point and meta.dtype.itemsize > 1


def _adds(step: ProgramStep) -> bool:
    return step.name == "add" and not step.attrs and [*step.reads()] == [*step.inputs]


def _is_product(step: ProgramStep) -> bool:
    """Whether the step is a product of two matrices, for Triton."""
    if not isinstance(step.op, MatrixOp) or step.op.reference not in PRODUCTS:
        return False
    return on_triton(step) and all(_is_real(value.meta) for value in step.reads())


def _accumulated(step: ProgramStep, total: Value, made: Value) -> ProgramStep:
    """The step that adds a product to a sum."""
    assert isinstance(step.op, MatrixOp)
    op = _accumulating(step.op)
    step = replace(
        step, name=op.name, origin=op, op=op, inputs=(*step.inputs, total), outputs=(made,),
        place=total,
    )  # fmt: skip
    return replace(step, run=run_of(op, step.input_metas, step.output_metas, ()))
