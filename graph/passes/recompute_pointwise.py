"""Recomputation: backward computes pointwise values again from what it reads anyway.

Applies where Triton does the work, since the kernel that needs such a value then computes it from
what it loads. Forward need not write the value, nor keep it until backward.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ir import Program, ProgramStep, Value
from .fuse_chains import refusal
from .fusion_groups import is_pointwise
from .pass_utils import together, uses

def recompute_pointwise(program: Program) -> Program:
    """The program in which steps of backward read values that are made again.

    A value is made again if pointwise steps alone read it, in both directions, and if backward
    reads what it is made of, or makes that again. So a gated activation, and one that is written
    as several ops, keep the inputs that their gradient needs, and nothing else.
    """
    numbers = program.free_numbers()
    again: dict[int, Value] = {}  # by the number of a value: the value that backward reads
    clones: dict[int, ProgramStep] = {}  # by the number of what it makes, the step
    known = _Readers.of(program)
    for step in program.steps:
        if not known.may_recompute(step, again) or refusal(step):
            continue
        made = step.outputs[0]
        again[made.number] = value = Value(next(numbers), made.meta)
        value.scope, value.line = made.scope, made.line
        clones[value.number] = replace(step.substitute(again), outputs=(value,), backward=True)
    if not again:
        return program
    steps: list[ProgramStep] = []
    for step in program.steps:
        if step.backward:
            step = step.substitute(again)
            _add_clones(step, clones, steps)
        steps.append(step)
    return replace(program, steps=steps)


def _add_clones(
    step: ProgramStep, clones: dict[int, ProgramStep], steps: list[ProgramStep]
) -> None:
    """Append the clones that a step needs, each before its first reader."""
    for value in step.reads():
        clone = clones.pop(value.number, None)
        if clone is not None:
            _add_clones(clone, clones, steps)
            steps.append(clone)


@dataclass(frozen=True, slots=True)
class _Readers:
    """Who reads the values of a program."""

    of_value: dict[int, list[ProgramStep]]  # by number
    wanted: frozenset[int]  # the values that must exist when a call ends

    @classmethod
    def of(cls, program: Program) -> _Readers:
        used, found = uses(program), defaultdict(list)
        for step in program.steps:
            if any(used[value.number] for value in step.outputs):
                for value in step.reads():
                    found[value.number].append(step)
        return cls(found, frozenset(value.number for value in program.wanted()))

    def may_recompute(self, step: ProgramStep, again: dict[int, Value]) -> bool:
        if step.backward or not is_pointwise(step):
            return False
        made = step.outputs[0]
        readers = self.of_value.get(made.number, [])
        later = [reader for reader in readers if reader.backward]
        if not later or made.number in self.wanted or not self._pointwise(step, readers):
            return False
        return all(value.number in again or self._read_by(later, value) for value in step.reads())

    def _pointwise(self, step: ProgramStep, readers: Sequence[ProgramStep]) -> bool:
        return all(
            is_pointwise(reader)
            and together(step, reader)
            and reader.outputs[0].meta.shape == step.outputs[0].meta.shape
            for reader in readers
        )

    def _read_by(self, later: Sequence[ProgramStep], value: Value) -> bool:
        """Whether backward reads a value in the stage and repetition of these steps."""
        return any(
            reader.backward and together(reader, later[0])
            for reader in self.of_value.get(value.number, ())
        )
