"""Tasks of a program without stages: its steps in turn, overlapped with communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..host_copies import FETCH, OFFLOAD
from ..ir import UPDATE, Program, ProgramStep
from ..memory_traffic import local_bytes
from .comm_costs import Communication
from .event_simulation import About
from .rank_work import Tasks


def add_program(tasks: Tasks, program: Program) -> None:
    """Add what each rank does in a call.

    A boxing that communicates begins when the steps before it are done, and steps that read its
    result wait for it, as `split_boxings` has it; what writes waits for all. Copies to the host and
    back are tasks of a stream of their own.
    """
    arriving: list[dict[int, int]] = [{} for _ in tasks.works]  # task by number of a value
    since = [0.0 for _ in tasks.works]  # the last collective, seconds of compute
    for at, step in enumerate(program.steps):
        for index in tasks.taking_part(step):
            work = tasks.works[index]
            if step.origin in (OFFLOAD, FETCH):
                arriving[index][step.outputs[0].number] = _host_copy(tasks, index, step, arriving)
                continue
            if step.start is None:
                amount = tasks.amount([step], index)
                work.done.add(amount)
                since[index] += amount.seconds
                needs = {arriving[index].get(value.number) for value in step.reads()}
                if step.writes:
                    needs.add(work.last.get("communication"))
                found = tuple(sorted(number for number in needs if number is not None))
                meeting = tasks.meeting(step, index, at)
                about = About(_kind(step), step.scope, amount.moved.received)
                tasks.add(index, "compute", step.name, amount.seconds, found, meeting, about)
                continue
            communication = tasks.boxing(step, index)
            work.done.communicate(communication)
            begun = communication.begun
            about = About(communication.kind, step.scope, communication.received)
            if begun:
                first = arriving[index].get(step.source.number)
                shown = replace(about, nbytes=0)
                needs_first = () if first is None else (first,)
                tasks.add(index, "compute", f"begin {step.name}", begun, needs_first, about=shown)
            before = work.last.get("compute")
            number = tasks.add(
                index,
                "communication",
                step.name,
                communication.seconds - begun + tasks.hardware.skew * since[index],
                () if before is None else (before,),
                tasks.meeting(step, index, at),
                about,
            )
            arriving[index][step.outputs[0].number] = number
            since[index] = 0.0


def _host_copy(
    tasks: Tasks, index: int, step: ProgramStep, arriving: Sequence[Mapping[int, int]]
) -> int:
    """Add a copy to the host, or back; its number.

    It begins when the steps before it are done, and what it copies has arrived.
    """
    work = tasks.works[index]
    nbytes = local_bytes(step.source.meta, work.rank)
    copied = Communication(nbytes / tasks.hardware.host_bandwidth)
    work.done.communicate(copied)
    needs = work.last.get("compute"), arriving[index].get(step.source.number)
    found = tuple([number for number in needs if number is not None])
    about = About(step.name, step.scope, nbytes)
    return tasks.add(index, "copies", step.name, copied.seconds, found, about=about)


def _kind(step: ProgramStep) -> str:
    """The part of a training step that a step belongs to."""
    if step.scope == UPDATE:
        return "update"
    return "backward" if step.backward else "forward"
