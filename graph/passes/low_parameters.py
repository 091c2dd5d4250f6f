"""Low parameters: a program in mixed precision reads copies of weights instead of casting them."""

from __future__ import annotations

from dataclasses import replace

from ...engine.ops.cast import Cast, is_half
from ...kernels.select import uses_triton
from ..ir import Program, Value, Variable
from ..low_copies import LowCopy, low_copy
from ..program_executor import kept_by_outputs


def read_low_parameters(program: Program) -> Program:
    """The program that reads copies of the parameters that it casts to half precision.

    `add_updates` writes them. Where Triton does the work, and unless the program itself changes
    the parameter, or memory of a cast may be read when a call has ended.
    """
    kept = kept_by_outputs(program)
    numbers = program.free_numbers()
    assigned = {variable.value.number for variable, _ in program.assigns}
    trained = {v.value.number: v for v, _ in program.gradients if v.value.number not in assigned}
    found: dict[int, tuple[LowCopy, Value]] = {}
    same: dict[int, Value] = {}
    for step in program.steps:
        if not isinstance(step.op, Cast) or step.source.number not in trained:
            continue
        (made,) = step.outputs
        meta, variable = made.meta, trained[step.source.number]
        if not is_half(meta.dtype) or made.number in kept or not uses_triton(meta.device_type):
            continue
        if meta is not variable.value.meta.like(dtype=meta.dtype):
            continue
        if variable.value.number not in found:
            name = f"{variable.value.name}-{str(meta.dtype).removeprefix('torch.')}"
            copy = low_copy(variable.tensor, meta)
            found[variable.value.number] = copy, Value(next(numbers), meta, name)
        value = found[variable.value.number][1]
        if value.meta is meta:
            same[made.number] = value
    steps = [
        step.substitute(same)
        for step in program.steps
        if not any(value.number in same for value in step.outputs)
    ]
    copies = [copy for copy, _ in found.values()]
    return replace(
        program.substitute(steps, same),
        variables=[
            *program.variables,
            *(Variable(value, copy.tensor) for copy, value in found.values()),
        ],
        copies=copies,
    )
