"""Fuses cross entropy and its gradient, so that the logits are read once.

Applies where Triton does the work: elsewhere the logarithms of sums are not kept for the gradient.
"""

from __future__ import annotations

from dataclasses import replace

from ...engine.op import Kernel, Local
from ...kernels import cross_entropy_ref as kernels
from ..ir import Program, ProgramStep, Value
from .fuse_chains import Fused, fused_step
from .pass_utils import together, uses


class LossAndGradient(Fused):
    """The loss of logits and its gradient for them, for a gradient of the loss that is known."""

    def __init__(self, loss: ProgramStep, gradient: ProgramStep, dy: Value | None) -> None:
        self.steps = (loss, gradient)
        self.num_outputs = 2
        self.with_dy = dy is not None

    def bind(self, local: Local, attrs: tuple[object, ...]) -> Kernel:
        reduction, ignored, _, dtype = self.steps[0].attrs
        compute = local.pick(kernels.whole_cross_entropy_and_grad)
        if self.with_dy:
            return lambda dy, x, target: compute(dy, x, target, reduction, ignored, dtype)
        return lambda x, target: compute(None, x, target, reduction, ignored, dtype)


def fuse_cross_entropy(program: Program) -> Program:
    """The program with one step for a loss and its gradient for the logits.

    The gradient of the loss must be known when the loss is computed: 1, as for `loss.backward()`,
    or a value that is made before. Weights and smoothing stay two steps.
    """
    found: dict[ProgramStep, ProgramStep] = {}  # by the loss
    gone: set[ProgramStep | None] = set()
    losses: dict[int, ProgramStep] = {}  # by the number of the logarithms of sums
    known = {value.number for value in (*program.inputs, *program.states)}
    known |= {variable.value.number for variable in program.variables}
    before: dict[ProgramStep, frozenset[int]] = {}  # what is known when a loss is computed
    makers, used = program.makers(), uses(program)
    for step in program.steps:
        if _is_loss(step) and used[step.outputs[1].number] == 1:
            losses[step.outputs[1].number] = step
            before[step] = frozenset(known)
        if step.name == "cross_entropy_grad" and type(step.inputs[4]) is Value:
            loss = losses.get(step.inputs[4].number)
            if loss is not None and _fit(loss, step):
                dy = step.inputs[0]
                assert type(dy) is Value
                one = makers.get(dy.number)
                if _is_one(one):
                    found[loss] = _fused(loss, step, None)
                    gone.update([one] if used[dy.number] == 1 else [])
                elif dy.number in before[loss]:
                    found[loss] = _fused(loss, step, dy)
                gone.update([step] if loss in found else [])
        known.update(value.number for value in step.outputs)
    steps = [found.get(step, step) for step in program.steps if step not in gone]
    return replace(program, steps=steps) if found else program


def _is_loss(step: ProgramStep) -> bool:
    """Whether the step is a loss of logits without weights and smoothing."""
    if step.name != "cross_entropy_with_lse":
        return False
    return step.inputs[2] is None and step.attrs[2] == 0.0


def _fit(loss: ProgramStep, gradient: ProgramStep) -> bool:
    """Whether a gradient is that of this loss, and for the same shards."""
    same = loss.inputs == gradient.inputs[1:4] and loss.attrs[:3] == gradient.attrs[:3]
    return same and together(loss, gradient) and not loss.backward


def _is_one(step: ProgramStep | None) -> bool:
    return step is not None and step.name == "constant_like" and step.attrs == (1,)


def _fused(loss: ProgramStep, gradient: ProgramStep, dy: Value | None) -> ProgramStep:
    x, target = loss.inputs[:2]
    inputs = [value for value in (dy, x, target) if type(value) is Value]
    outputs = (loss.outputs[0], gradient.outputs[0])
    step = fused_step(LossAndGradient(loss, gradient, dy), inputs, outputs)
    return replace(
        step, scope=loss.scope, line=loss.line, backward=False, gradient_of=loss.gradient_of
    )
