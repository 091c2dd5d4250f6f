"""Products with one: the gradient of a loss for itself is 1, and what it multiplies stays."""

from __future__ import annotations

from ..ir import Program, ProgramStep, Value


def fold_ones(program: Program) -> Program:
    """The program without products with a constant 1; no bit changes.

    Products that build() returns stay, and those with what is no step's own memory.
    """
    makers = program.makers()
    returned = {value.number for value in program.outputs}
    same: dict[int, Value] = {}  # by number: the value that is the same
    steps = []
    for step in program.steps:
        step = step.substitute(same)
        factor = None if step.outputs[0].number in returned else _factor(step, makers)
        if factor is None:
            steps.append(step)
        else:
            same[step.outputs[0].number] = factor
    return program.substitute(steps, same)


def _factor(step: ProgramStep, makers: dict[int, ProgramStep]) -> Value | None:
    """The factor that the step only multiplies by one."""
    if step.name != "mul" or step.attrs or len(step.inputs) != 2:
        return None
    a, b = step.inputs
    for one, x in ((a, b), (b, a)):
        if type(one) is not Value or type(x) is not Value or x.meta != step.outputs[0].meta:
            continue
        maker, other = makers.get(one.number), makers.get(x.number)
        if maker is None or maker.name != "constant_like" or maker.attrs != (1,):
            continue
        if other is not None and not other.aliases:
            return x
    return None
