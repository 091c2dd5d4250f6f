"""Overlap: communication starts as soon as its input exists, not when its result is needed."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ...engine.meta import Meta
from ..ir import Program, ProgramStep

_SMALL = 64 * 1024  # bytes that may be held longer


def overlap_communication(program: Program) -> Program:
    """The program with each communicating boxing moved to directly after its input.

    Steps in between overlap with them, such as the gradients of weights that follow the gradient of
    the same layer's input. A boxing stays where it is when more bytes would be held for longer,
    such as of a gathered parameter.
    """
    last = {v.number: step for step in program.steps for v in step.reads()}
    maker = program.makers()
    wanted = {value.number for value in program.wanted()}
    early: dict[int, list[ProgramStep]] = {}  # by the identity of the step that makes the input
    for step in program.steps:
        if step.start is None:
            continue
        given, (made,) = step.source, step.outputs
        ends_here = last[given.number] is step and given.number not in wanted
        longer = _held(made.meta) - (_held(given.meta) if ends_here else 0)
        if given.number in maker and longer <= (0 if ends_here else _SMALL):
            early.setdefault(id(maker[given.number]), []).append(step)
    moved = {id(step) for steps in early.values() for step in steps}
    found: list[ProgramStep] = []
    for step in program.steps:
        if id(step) not in moved:
            _append(found, step, early)
    return replace(program, steps=found)


def _held(meta: Meta) -> int:
    """Bytes of the largest shard."""
    return prod(meta.local_shape(0)) * meta.dtype.itemsize


def _append(
    found: list[ProgramStep], step: ProgramStep, early: dict[int, list[ProgramStep]]
) -> None:
    """Append a step, and the boxings that can begin when it is done."""
    left = [step]
    while left:
        step = left.pop()
        found.append(step)
        left += reversed(early.get(id(step), ()))
