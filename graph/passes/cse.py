"""Common subexpression elimination: the same op on the same values runs once, boxing too."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...engine.generator import Draw
from ..ir import Program, ProgramStep, Value


def eliminate_common(program: Program) -> Program:
    """The program with one of several equal steps; later uses read the first one's outputs."""
    same: dict[int, Value] = {}  # by number: the earlier value to use instead
    first: dict[object, ProgramStep] = {}

    steps = []
    for step in program.steps:
        step = step.substitute(same)
        # What a checkpoint recomputes must not be kept: nothing before it may stand for it.
        key = step.recomputation, work_of(step)
        earlier = first.setdefault(key, step) if step.repeatable else step
        if earlier is step:
            steps.append(step)
        else:
            pairs = zip(step.outputs, earlier.outputs, strict=True)
            same.update((value.number, before) for value, before in pairs)
    return program.substitute(steps, same)


def work_of(step: ProgramStep, draws: Mapping[Draw, object] = MappingProxyType({})) -> object:
    """A key that is equal for steps that do the same, and draw the same numbers by `draws`."""
    inputs = tuple([v.number if type(v) is Value else _argument(v, draws) for v in step.inputs])
    attrs = tuple([_argument(each, draws) for each in step.attrs])
    return step.origin, step.stage, inputs, attrs, step.output_metas


def _argument(value: object, draws: Mapping[Draw, object]) -> object:
    """The key of an argument: 1, 1.0 and True are equal but not the same, as are 0.0 and -0.0."""
    if type(value) is tuple or (draws and isinstance(value, tuple)):
        return type(value), tuple([_argument(each, draws) for each in value])
    if type(value) is Draw:
        return draws.get(value, value)
    return type(value), repr(value) if type(value) in (float, complex) else value
