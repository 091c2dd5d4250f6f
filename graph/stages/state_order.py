"""Checks that each micro-batch reads variables as the one before it left them."""

from __future__ import annotations

from ...errors import OnefoldRuntimeError
from ..ir import Value
from ..schedules.actions import Action
from .partition import Part, Staged
from .stage_plan import StagePlan


def first_readers(staged: Staged) -> dict[Part, list[Value]]:
    """For each segment, the variables that it reads in the state after the micro-batch before.

    That is the first segment that reads a variable, or else the one that changes it: its value is
    lost afterwards.
    """
    reads = {
        part: {value.number for step in steps for value in step.reads()}
        for part, steps in staged.segments.items()
        if part[0] == "F"
    }
    found: dict[Part, list[Value]] = {}
    for changer, pairs in staged.assigns_after().items():
        if changer is None:  # the executor sees to these before all
            continue
        for variable, _ in pairs:
            readers = (part for part, numbers in reads.items() if variable.number in numbers)
            found.setdefault(next(readers, changer), []).append(variable)
    return found


def check_states(plan: StagePlan) -> None:
    """Raise OnefoldRuntimeError if a micro-batch would read what the one before has yet to change.

    Without stages, micro-batches run one after the other, so the results would differ.
    """
    staged = plan.staged
    reader_of = {
        variable.number: part
        for part, variables in first_readers(staged).items()
        for variable in variables
    }
    when = {
        (each.kind, each.stage, each.micro_batch): index
        for instructions in plan.instructions
        for index, each in enumerate(instructions)
        if isinstance(each, Action)
    }
    for changer, pairs in staged.assigns_after().items():
        if changer is None:
            continue
        for variable, value in pairs:
            reader = reader_of[variable.number]
            for micro in range(1, plan.schedule.micro_batches):
                if reader != changer and when[*reader, micro] < when[*changer, micro - 1]:
                    raise _too_early(plan, variable, value, reader, changer)


def _too_early(
    plan: StagePlan, variable: Value, value: Value, reader: Part, changer: Part
) -> OnefoldRuntimeError:
    segments = plan.staged.segments
    changes = next((s for s in segments[changer] if value in s.outputs), segments[changer][-1])
    reads = next(s for s in segments[reader] if variable in s.reads())
    where = "the backward of " * changes.backward + (changes.scope or "build")
    return OnefoldRuntimeError(
        f"{variable!r} is read at {reads.line}, and changed after that by {where} at "
        f"{changes.line}; under schedule {plan.schedule.name} a micro-batch reads it before the "
        "one before has changed it. Change it in the forward of the module that reads it, or run "
        "one micro-batch (set_gradient_accumulation_steps(1))"
    )
