"""Low parameters: a program in mixed precision reads copies of weights instead of casting them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...engine.meta import Meta
from ...engine.ops.cast import Cast, is_half
from ...kernels.select import uses_triton
from ..ir import Program, ProgramStep, Value, Variable
from ..low_copies import LowCopy, low_copy
from ..program_executor import kept_by_outputs


@dataclass(frozen=True, eq=False)
class Copied:
    """A variable that steps cast to half precision, and a copy that could be read instead."""

    copy: LowCopy
    value: Value  # the copy in the program
    casts: list[ProgramStep] = field(default_factory=list)  # one for each micro-batch


def copied_variables(program: Program, numbers: Iterator[int]) -> dict[int, Copied]:
    """The variables that could have a copy, by number.

    Where Triton does the work, and unless memory of a cast may be read when a call has ended.
    """
    kept = kept_by_outputs(program)
    variables = {variable.value.number: variable for variable in program.variables}
    found: dict[int, Copied] = {}
    for step in program.steps:
        if not isinstance(step.op, Cast) or step.source.number not in variables:
            continue
        (made,) = step.outputs
        if not is_half(made.meta.dtype) or made.number in kept:
            continue
        if not uses_triton(made.meta.device_type):
            continue
        variable = variables[step.source.number]
        copied = found.get(variable.value.number) or _copied(variable, made.meta, numbers)
        if copied.value.meta is made.meta:
            found[variable.value.number] = copied
            copied.casts.append(step)
    return found


def _copied(variable: Variable, meta: Meta, numbers: Iterator[int]) -> Copied:
    name = f"{variable.value.name}-{str(meta.dtype).removeprefix('torch.')}"
    return Copied(low_copy(variable.tensor, meta.dtype), Value(next(numbers), meta, name))


def read_copies(program: Program, copied: Sequence[Copied]) -> Program:
    """The program that reads these copies, which something else writes."""
    casts = [(step, each.value) for each in copied for step in each.casts]
    same = {step.outputs[0].number: value for step, value in casts}
    gone = {id(step) for step, _ in casts}
    steps = [step.substitute(same) for step in program.steps if id(step) not in gone]
    variables = [Variable(each.value, each.copy.tensor) for each in copied]
    return replace(
        program.substitute(steps, same),
        variables=[*program.variables, *variables],
        copies=[each.copy for each in copied],
    )
