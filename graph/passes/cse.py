"""Common subexpression elimination: the same op on the same values runs once, boxing too."""

from __future__ import annotations

from ..ir import Program, ProgramStep, Value


def eliminate_common(program: Program) -> Program:
    """The program with one of several equal steps; later uses read the first one's outputs."""
    same: dict[int, Value] = {}  # by number: the earlier value to use instead
    first: dict[object, ProgramStep] = {}

    steps = []
    for step in program.steps:
        step = step.substitute(same)
        earlier = first.setdefault(_key(step), step) if step.repeatable else step
        if earlier is step:
            steps.append(step)
        else:
            pairs = zip(step.outputs, earlier.outputs, strict=True)
            same.update((value.number, before) for value, before in pairs)
    return program.substitute(steps, same)


def _key(step: ProgramStep) -> object:
    inputs = tuple([v.number if type(v) is Value else _argument(v) for v in step.inputs])
    attrs = tuple(map(_argument, step.attrs))
    # What a checkpoint makes again was not to be kept: it is shared with nothing before it.
    return step.origin, step.stage, step.again, inputs, attrs, step.output_metas


def _argument(value: object) -> object:
    """What tells arguments apart: 1, 1.0 and True are equal but not the same, nor 0.0 and -0.0."""
    if type(value) is tuple:
        return tuple(map(_argument, value))
    return type(value), repr(value) if type(value) in (float, complex) else value
