"""Selective checkpointing: what a checkpointed module is to save is kept, not recomputed."""

from __future__ import annotations

from ..ir import Program, ProgramStep, Value
from .cse import work_of


def save_activations(program: Program) -> Program:
    """The program in which backward reads `saved_activations` of checkpointed modules.

    Each recomputed step is matched with the step of forward that did the same. If that step is
    saved, its results replace the recomputed ones, which nothing may need then. Source: Korthikanti
    et al., "Reducing activation recomputation in large transformer models" (2022).
    """
    if not any(step.saved for step in program.steps):
        return program
    draws = program.draws.numbers()
    first: dict[object, ProgramStep] = {}
    same: dict[int, Value] = {}  # by the number of what is recomputed: the first result
    saved: dict[int, Value] = {}  # of these, what is kept
    for step in program.steps:
        work = work_of(step.substitute(same), draws)
        if not step.recomputation:
            first.setdefault(work, step)
            continue
        earlier = first.get(work)
        if earlier is None:
            continue
        pairs = list(zip((value.number for value in step.outputs), earlier.outputs, strict=True))
        same.update(pairs)
        if earlier.saved:
            saved.update(pairs)
    return program.substitute([step.substitute(saved) for step in program.steps], saved)
