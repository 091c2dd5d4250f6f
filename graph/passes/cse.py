"""Common subexpression elimination: the same op on the same values runs once, boxing too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..ir import Program, ProgramStep, Value, Variable


def eliminate_common(program: Program) -> Program:
    """The program with one of several equal steps; later uses read the first one's outputs."""
    same: dict[int, Value] = {}  # by number: the earlier value to use instead
    first: dict[Any, ProgramStep] = {}

    def now(value: Any) -> Any:
        return same.get(value.number, value) if type(value) is Value else value

    steps = []
    for step in program.steps:
        step = replace(step, inputs=tuple([now(value) for value in step.inputs]))
        earlier = first.setdefault(_key(step), step) if step.repeatable else step
        if earlier is step:
            steps.append(step)
        else:
            for value, before in zip(step.outputs, earlier.outputs, strict=True):
                same[value.number] = before

    def ends(pairs: list[tuple[Variable, Value]]) -> list[tuple[Variable, Value]]:
        return [(variable, now(value)) for variable, value in pairs]

    return replace(
        program,
        steps=steps,
        outputs=[now(value) for value in program.outputs],
        assigns=ends(program.assigns),
        gradients=ends(program.gradients),
    )


def _key(step: ProgramStep) -> Any:
    inputs = tuple([v.number if type(v) is Value else _argument(v) for v in step.inputs])
    attrs = tuple(map(_argument, step.attrs))
    # What a checkpoint makes again was not to be kept: it is shared with nothing before it.
    return (
        step.origin,
        step.stage,
        step.again,
        inputs,
        attrs,
        tuple([value.meta for value in step.outputs]),
    )


def _argument(value: Any) -> Any:
    """What tells arguments apart: 1, 1.0 and True are equal but not the same, nor 0.0 and -0.0."""
    if type(value) is tuple:
        return tuple(map(_argument, value))
    return type(value), repr(value) if type(value) in (float, complex) else value
