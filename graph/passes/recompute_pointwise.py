"""Recomputation: backward recomputes pointwise values from what it reads anyway.

Applies where Triton does the work, since the kernel that needs such a value then computes it from
what it loads. Forward need not write the value, nor keep it until backward.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from ..ir import Program, ProgramStep, Value
from .fuse_chains import why_not_fused
from .fusion_groups import is_pointwise
from .pass_utils import together, uses

MAX_RECOMPUTED = 6  # steps that are repeated for the sake of one value


def recompute_pointwise(program: Program) -> Program:
    """The program in which steps of backward read values that are recomputed.

    A value is recomputed if pointwise steps alone read it, in both directions, and if it follows by
    a few pointwise steps from what backward reads. So a gated activation, and one that is written
    as several ops, keep the inputs that their gradient needs, and nothing else.
    """
    found = _Recomputed(program)
    for step in program.steps:
        if not step.backward and is_pointwise(step) and not why_not_fused(step):
            found.add(step)
    if not found.values:
        return program
    clones = found.clones()
    steps: list[ProgramStep] = []
    for step in program.steps:
        if step.backward:
            step = step.substitute(found.values)
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


@dataclass(slots=True)
class _Recomputed:
    """The values that backward recomputes, and the steps that it needs for them."""

    program: Program
    values: dict[int, Value] = field(default_factory=dict)  # by the number of the original
    _readers: dict[int, list[ProgramStep]] = field(default_factory=dict)  # by number
    # By number, the steps after what backward reads that make a value which it may not read.
    _behind: dict[int, tuple[ProgramStep, ...]] = field(default_factory=dict)
    _repeated: dict[ProgramStep, None] = field(default_factory=dict)
    _wanted: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        used, readers = uses(self.program), defaultdict(list)
        for step in self.program.steps:
            if any(used[value.number] for value in step.outputs):
                for value in step.reads():
                    readers[value.number].append(step)
        self._readers = dict(readers)
        self._wanted = frozenset(value.number for value in self.program.wanted())

    def add(self, step: ProgramStep) -> None:
        """Note whether backward can recompute what a step makes, and whether it should."""
        made = step.outputs[0]
        before: dict[ProgramStep, None] = {}
        for value in step.reads():
            if not self._is_read(value, step):
                if value.number not in self._behind:
                    return
                before.update(dict.fromkeys(self._behind[value.number]))
        if len(before) >= MAX_RECOMPUTED:
            return
        self._behind[made.number] = (*before, step)
        if self._is_worthwhile(step):
            self._repeated.update(dict.fromkeys((*before, step)))
            self.values[made.number] = made  # until all are known

    def clones(self) -> dict[int, ProgramStep]:
        """By the number of what it makes, each step of backward that is new."""
        numbers = self.program.free_numbers()
        self.values.clear()
        made = {}
        for step in self._repeated:
            (old,) = step.outputs
            value = self.values[old.number] = Value(next(numbers), old.meta)
            value.scope, value.line = old.scope, old.line
            made[value.number] = replace(
                step.substitute(self.values), outputs=(value,), backward=True
            )
        return made

    def _is_read(self, value: Value, like: ProgramStep) -> bool:
        """Whether backward reads a value in the stage and recomputation of this step."""
        readers = self._readers.get(value.number, ())
        return any(reader.backward and together(reader, like) for reader in readers)

    def _is_worthwhile(self, step: ProgramStep) -> bool:
        """Whether forward then need not keep what the step makes, nor write it."""
        (made,) = step.outputs
        readers = self._readers.get(made.number, [])
        return (
            made.number not in self._wanted
            and self._is_read(made, step)
            and all(
                is_pointwise(reader)
                and together(step, reader)
                and reader.outputs[0].meta.shape == made.meta.shape
                for reader in readers
            )
        )
