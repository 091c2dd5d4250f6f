"""Unit activations: what the units of a model make in forward, and the time to recompute it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from ..graph.ir import Program, ProgramStep, Value
from ..graph.memory_traffic import local_bytes
from ..graph.passes.cse import eliminate_common
from ..graph.saved_activations import ActivationNames, is_activation
from ..graph.simulator.rank_work import Tasks
from .model_units import ROOT
from .recomputation import Activation

UnitOf: TypeAlias = Callable[[str], "str | None"]  # of a module's path, where it is in one


def unit_activations(
    program: Program, captured: Program, unit_of: UnitOf, tasks: Tasks
) -> dict[str, list[Activation]]:
    """By unit what it makes in `captured`, and whether backward reads it in `program`.

    The one is what the other was before any pass. What other units read in forward, such as what a
    unit returns, is there in any case, and not among them.
    """
    names = _names(captured, unit_of)
    steps = [step for step in eliminate_common(captured).steps if not step.backward]
    roots, given = roots_of(steps), _given(steps, unit_of)
    late = _read_late(program)
    found: dict[str, list[Activation]] = {}
    place: dict[int, int] = {}  # by number, in the list of its unit
    for step in steps:
        unit = unit_of(step.scope)
        numbers = {value.number for value in step.outputs}
        if unit is None or step.aliases or given & numbers or not names.keys() & numbers:
            continue
        reads = [roots.get(value.number, value.number) for value in step.reads()]
        reads = [number for number in reads if number in place]
        kept = sum(local_bytes(value.meta, 0) for value in step.outputs if value.number in late)
        amount = tasks.amount([step], 0)
        activation = Activation(
            name=names[min(numbers)],
            nbytes=kept,
            rest=sum(local_bytes(value.meta, 0) for value in step.outputs) - kept,
            seconds=amount.seconds,
            comm=amount.moved.seconds,
            reads=tuple([place[number] for number in reads]),
            reads_rest=tuple([place[number] for number in reads if number not in late]),
        )
        made = found.setdefault(unit, [])
        place.update(dict.fromkeys(numbers, len(made)))
        made.append(activation)
    return found


def roots_of(steps: Iterable[ProgramStep], in_place: bool = False) -> dict[int, int]:
    """By the number of each view, that of the value whose memory it shares.

    With `in_place` also by those of values that steps make in place.
    """
    found: dict[int, int] = {}
    for step in steps:
        source = step.inputs[0] if step.aliases and step.inputs else None
        if in_place and step.place is not None:
            source = step.place
        if type(source) is Value:
            root = found.get(source.number, source.number)
            found.update((value.number, root) for value in step.outputs)
    return found


def _names(captured: Program, unit_of: UnitOf) -> dict[int, str]:
    """By number, what values are called in `saved_activations` of a unit."""
    outside = {variable.value.number for variable in captured.variables}
    counted: dict[str, ActivationNames] = {}
    found: dict[int, str] = {}
    for step in captured.steps:
        unit = unit_of(step.scope)
        if unit is None or step.backward or not is_activation(step, outside):
            continue
        if unit not in counted:
            counted[unit] = ActivationNames(f"{ROOT}.{unit}")
        name = counted[unit].name(step.scope, step.name)
        found.update((value.number, name) for value in step.outputs)
    return found


def _given(steps: Iterable[ProgramStep], unit_of: UnitOf) -> set[int]:
    """The numbers of what one unit makes and another one reads."""
    steps = list(steps)
    roots = roots_of(steps)
    owner: dict[int, str | None] = {}
    found: set[int] = set()
    for step in steps:
        unit = unit_of(step.scope)
        for value in step.reads():
            number = roots.get(value.number, value.number)
            if owner.get(number, unit) != unit:
                found.add(number)
        if not step.aliases:
            owner.update((value.number, unit) for value in step.outputs)
    return found


def _read_late(program: Program) -> set[int]:
    """The numbers of what backward reads; in place of views, of what they are views of."""
    roots = roots_of(step for step in program.steps if not step.backward)
    late = {value.number for step in program.steps if step.backward for value in step.reads()}
    return {roots.get(number, number) for number in late}
