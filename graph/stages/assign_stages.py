"""Assigns a pipeline stage to every step of a program.

The steps of a module are on the stage that the user assigned to it. Other steps follow their
inputs. A step that moves data to another stage's ranks belongs to that stage. The steps of a
gradient are on the stage of the step that they differentiate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...engine.convert import BOXING
from ...errors import OnefoldRuntimeError
from ..ir import Program, ProgramStep, Value, show


def assign_stages(program: Program, ranks: Sequence[frozenset[int]]) -> Program:
    """The program with a stage for every step; `ranks` are those of each stage, none without.

    Raises OnefoldRuntimeError for an edge that goes back from a later stage to an earlier one,
    for a step on other ranks than its stage's, for a local tensor, and for a stage without steps.
    """
    if not ranks:
        return program
    for step in program.steps:
        _check_global(step)
    missing = set(range(len(ranks))) - {step.stage for step in program.steps}
    if missing:
        raise OnefoldRuntimeError(
            f"no step of the program is on stage {min(missing)}: build() never calls its module, "
            "or the module does nothing; remove its set_stage, or call it"
        )
    backward = is_backward(program)
    stages = _Forward(program, ranks, backward).stages()
    _gradients(program, ranks, backward, stages)
    steps = [replace(step, stage=stage) for step, stage in zip(program.steps, stages, strict=True)]
    for step in steps:
        _check_ranks(step, ranks)
    _check_order(steps, backward)
    return replace(program, steps=steps)


def ranks_of(value: Value) -> frozenset[int]:
    """The ranks that a value is on."""
    assert value.meta.placement is not None
    return frozenset(value.meta.placement.flat_ranks)


def crosses(step: ProgramStep) -> bool:
    """Whether a step moves a value to other ranks."""
    return step.origin is BOXING and ranks_of(step.inputs[0]) != ranks_of(step.outputs[0])


def is_backward(program: Program) -> list[bool]:
    """For each step whether it is of the backward pass: a gradient, or made of one."""
    late: set[int] = set()
    found = []
    for step in program.steps:
        is_late = step.backward or step.again > 0 or any(v.number in late for v in step.reads())
        found.append(is_late)
        if is_late:
            late.update(value.number for value in step.outputs)
    return found


class _Forward:
    """The stages of the forward pass's steps; None for those of the backward pass."""

    def __init__(
        self, program: Program, ranks: Sequence[frozenset[int]], backward: Sequence[bool]
    ) -> None:
        self.steps = program.steps
        self.ranks = ranks
        self.forward = [i for i, late in enumerate(backward) if not late]
        self.found: list[int | None] = [None] * len(program.steps)
        self.seen: dict[int, int] = {}  # by the number of a value: the stage it seems to be on

    def stages(self) -> list[int | None]:
        for index in self.forward:
            self._from_inputs(index)
        users: dict[int, list[int]] = {}  # by the number of a value: the stages of its readers
        for index in reversed(self.forward):
            self._from_readers(index, users)
        return self.found

    def _from_inputs(self, index: int) -> None:
        step = self.steps[index]
        came = [self.seen[v.number] for v in step.reads() if v.number in self.seen]
        stage = max(came, default=None)
        if crosses(step):
            if stage is not None:  # the next stage there, until its readers say better
                there = ranks_of(step.outputs[0])
                after = [s for s, r in enumerate(self.ranks) if r == there and s > stage]
                stage = min(after, default=stage)
        else:
            stage = self.found[index] = step.stage if step.stage is not None else stage
        if stage is not None:
            self.seen.update((value.number, stage) for value in step.outputs)

    def _from_readers(self, index: int, users: dict[int, list[int]]) -> None:
        step = self.steps[index]
        if self.found[index] is None:
            readers = [s for value in step.outputs for s in users.get(value.number, ())]
            seems = self.seen.get(step.outputs[0].number)
            if seems is None:  # it reads no more than variables
                seems = _stage_on(self.ranks, step) or 0
            self.found[index] = min(readers, default=seems)
        stage = self.found[index]
        assert stage is not None
        if not crosses(step):
            for value in step.reads():
                users.setdefault(value.number, []).append(stage)


def _gradients(
    program: Program,
    ranks: Sequence[frozenset[int]],
    backward: Sequence[bool],
    stages: list[int | None],
) -> None:
    """Fill in the stages of the backward pass's steps."""
    made_by = {v.number: i for i, step in enumerate(program.steps) for v in step.outputs}

    def stage_of(value: Value) -> int | None:
        maker = made_by.get(value.number)
        return None if maker is None else stages[maker]

    for index, step in enumerate(program.steps):
        if not backward[index]:
            continue
        maker = made_by.get(step.of)
        stage = step.stage
        if maker is not None:
            forward = program.steps[maker]
            if crosses(forward) and not backward[maker]:
                stage = stage_of(forward.inputs[0])
                if stage is None:  # the gradient of a variable goes where that is
                    stage = _stage_on(ranks, step)
            if stage is None:
                stage = stages[maker]
        elif stage is None:
            came = [s for s in map(stage_of, step.reads()) if s is not None]
            stage = (max if step.again else min)(came, default=_stage_on(ranks, step) or 0)
        stages[index] = stage


def _stage_on(ranks: Sequence[frozenset[int]], step: ProgramStep) -> int | None:
    """The first stage that has the ranks of what a step makes."""
    there = ranks_of(step.outputs[0])
    return next((stage for stage, its in enumerate(ranks) if there <= its), None)


def _check_global(step: ProgramStep) -> None:
    for value in (*step.reads(), *step.outputs):
        if value.meta.placement is None:
            where = f"module {step.scope}" if step.scope else "build()"
            raise OnefoldRuntimeError(
                f"{step.name} in {where}, at {step.line}, works on a local tensor; in a graph with "
                "stages every tensor is global. Make it with placement= and sbp=, or convert it "
                "with .to_global(placement, sbp) before the call"
            )


def _check_ranks(step: ProgramStep, ranks: Sequence[frozenset[int]]) -> None:
    assert step.stage is not None
    here = ranks_of(step.outputs[0])
    if crosses(step) or here <= ranks[step.stage]:
        return
    held = [repr(value) for value in step.reads() if value.name]
    reads = f", reading {', '.join(held)}" if held else ""
    raise OnefoldRuntimeError(
        f"{step.name} of {step.scope or 'build()'}, at {step.line}, runs on ranks {sorted(here)}"
        f"{reads}, but it is on stage {step.stage}, whose ranks are {sorted(ranks[step.stage])}; "
        "make the module's parameters on its stage's ranks, or put the module on another stage"
    )


def _check_order(steps: Sequence[ProgramStep], backward: Sequence[bool]) -> None:
    made_by = {v.number: i for i, step in enumerate(steps) for v in step.outputs}
    for index, step in enumerate(steps):
        if backward[index] or crosses(step):
            continue
        for value in step.reads():
            maker = made_by.get(value.number)
            while maker is not None and crosses(steps[maker]):
                maker = made_by.get(steps[maker].inputs[0].number)
            if maker is None:
                continue
            before = steps[maker]
            assert step.stage is not None and before.stage is not None
            if before.stage > step.stage:
                raise OnefoldRuntimeError(
                    f"{step.scope or 'build()'} is on stage {step.stage} but reads, at "
                    f"{step.line}, what {before.scope or 'build()'} on stage {before.stage} made "
                    f"at {before.line} ({show(before)}); number the stages in the order in which "
                    "data goes through them"
                )
