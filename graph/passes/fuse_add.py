"""Fuses a matrix product and the addition that uses it into one addmm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import torch

from ...engine.op import Op
from ...kernels import matmul_ref
from ..ir import Program, ProgramStep, Value
from .pass_utils import run_of, same_segment, uses


class Addmm(Op):
    """x + a @ b, one of the factors perhaps transposed."""

    def __init__(self, form: str, kernel: Callable[..., torch.Tensor]) -> None:
        self.name = f"addmm_{form}"
        self.kernel = kernel


_NN = Addmm("nn", matmul_ref.addmm)
_NT = Addmm("nt", matmul_ref.addmm_nt)
_TN = Addmm("tn", matmul_ref.addmm_tn)
_FUSED = {"mm": _NN, "matmul": _NN, "mm_nt": _NT, "linear": _NT, "mm_tn": _TN}


def fuse_add(program: Program) -> Program:
    """The program with one step for a matrix product and the addition that is its only user.

    Results may differ in the last digits: the sum is rounded once instead of twice.
    """
    used = uses(program)
    makers = program.makers()
    gone: set[int] = set()  # the numbers of products that are no longer made
    steps = []
    for step in program.steps:
        chosen = _product(step, makers, used)
        if chosen is None:
            steps.append(step)
        else:
            gone.add(chosen[1].outputs[0].number)
            steps.append(_fused(step, *chosen))
    return replace(program, steps=[s for s in steps if s.outputs[0].number not in gone])


def _product(
    step: ProgramStep, makers: dict[int, ProgramStep], used: Counter[int]
) -> tuple[Value, ProgramStep] | None:
    """The other addend and the product, if the step only adds the two."""
    if step.name != "add" or step.attrs or len(step.inputs) != 2:
        return None
    a, b = step.inputs
    for x, y in ((a, b), (b, a)):
        if type(x) is not Value or type(y) is not Value or x is y:
            continue
        maker = makers.get(y.number)
        alike = x.meta is y.meta is step.outputs[0].meta
        if maker is None or not alike or used[y.number] != 1 or not _is_product(maker):
            continue
        if same_segment(maker, step):
            return x, maker
    return None


def _is_product(step: ProgramStep) -> bool:
    """Whether the step is a product of two matrices of floating point numbers, and no more."""
    if step.name not in _FUSED or step.attrs:
        return False
    a, b, *bias = step.inputs
    matrices = all(type(v) is Value and v.meta.ndim == 2 and v.meta.is_floating for v in (a, b))
    return matrices and bias in ([], [None])


def _fused(add: ProgramStep, x: Value, product: ProgramStep) -> ProgramStep:
    op = _FUSED[product.name]
    step = replace(add, name=op.name, origin=op, inputs=(x, *product.inputs[:2]), op=None)
    return replace(step, run=run_of(op, step.input_metas, step.output_metas, ()))
