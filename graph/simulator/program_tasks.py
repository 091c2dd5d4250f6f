"""Tasks of a program without stages: its steps in turn, communication beside them."""

from __future__ import annotations

from ..ir import UPDATE, Program, ProgramStep
from .event_simulation import About
from .rank_work import Tasks


def add_program(tasks: Tasks, program: Program) -> None:
    """Add what each rank does in a call.

    A boxing that communicates begins when the steps before it are done, and steps that read its
    result wait for it, as `split_boxings` has it; what writes waits for all.
    """
    arriving: list[dict[int, int]] = [{} for _ in tasks.works]  # task by number of a value
    for at, step in enumerate(program.steps):
        for index in tasks.taking_part(step):
            work = tasks.works[index]
            if step.start is None:
                amount = tasks.amount([step], index)
                work.done.add(amount)
                needs = {arriving[index].get(value.number) for value in step.reads()}
                if step.writes:
                    needs.add(work.last.get("communication"))
                found = tuple(sorted(number for number in needs if number is not None))
                meeting = tasks.meeting(step, index, at)
                about = About(_kind(step), step.scope, amount.received)
                tasks.add(index, "compute", step.name, amount.seconds, found, meeting, about)
                continue
            communication = tasks.boxing(step, index)
            work.done.communicate(communication)
            before = work.last.get("compute")
            number = tasks.add(
                index,
                "communication",
                step.name,
                communication.seconds,
                () if before is None else (before,),
                tasks.meeting(step, index, at),
                About(communication.kind, step.scope, communication.received),
            )
            arriving[index][step.outputs[0].number] = number


def _kind(step: ProgramStep) -> str:
    """The part of a training step that a step belongs to."""
    if step.scope == UPDATE:
        return "update"
    return "backward" if step.backward else "forward"
