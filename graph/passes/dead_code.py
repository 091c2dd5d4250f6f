"""Dead code elimination: removes steps and variables that no output depends on."""

from __future__ import annotations

from dataclasses import replace

from ..ir import Program


def eliminate_dead(program: Program) -> Program:
    """The program without the steps and variables that no output, assign or gradient needs."""
    needed = {value.number for value in program.wanted()}
    kept = []
    for step in reversed(program.steps):
        if any(value.number in needed for value in step.outputs):
            needed.update(value.number for value in step.reads())
            kept.append(step)
    ends = {id(variable) for variable, _ in (*program.assigns, *program.gradients)}
    variables = [v for v in program.variables if v.value.number in needed or id(v) in ends]
    return replace(program, steps=kept[::-1], variables=variables)
