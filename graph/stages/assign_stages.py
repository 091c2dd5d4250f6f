"""Assigns a pipeline stage to every step of a program.

The steps of a module are on the stage that the user assigned to it. Other steps follow their
inputs. A step that moves data to another stage's ranks belongs to that stage. The steps of a
gradient are on the stage of the step that they differentiate. What brings outputs to ranks of
another stage than the next ones, such as a loss to the first rank, is on none: it is done after all
micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...engine.convert import BOXING
from ...engine.ops.dropout import DropoutKey
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
    stages = _forward(program, ranks, backward)
    _gradients(program, ranks, backward, stages)
    for index in _last(program, ranks, stages):
        stages[index] = None
    steps = [replace(step, stage=stage) for step, stage in zip(program.steps, stages, strict=True)]
    for step in steps:
        if step.stage is not None:
            _check_ranks(step, ranks)
    _check_order(steps, backward)
    return replace(program, steps=steps)


def ranks_of(value: Value) -> frozenset[int]:
    """The ranks that a value is on."""
    return value.meta.global_placement.members


def crosses(step: ProgramStep) -> bool:
    """Whether a step moves a value to other ranks."""
    if step.origin is not BOXING:
        return False
    here, there = ranks_of(step.source), ranks_of(step.outputs[0])
    return here is not there and here != there


def draws(step: ProgramStep) -> bool:
    """Whether a step may have a different result for every micro-batch, from the same inputs."""
    return not step.repeatable or any(type(given) is DropoutKey for given in step.inputs)


def is_backward(program: Program) -> list[bool]:
    """For each step, whether it belongs to the backward pass: a gradient, or computed from one."""
    late: set[int] = set()
    found = []
    for step in program.steps:
        is_late = (
            step.backward or step.recomputation > 0 or any(v.number in late for v in step.reads())
        )
        found.append(is_late)
        if is_late:
            late.update(value.number for value in step.outputs)
    return found


def _forward(
    program: Program, ranks: Sequence[frozenset[int]], backward: Sequence[bool]
) -> list[int | None]:
    """The stages of the forward pass's steps; None for those of the backward pass."""
    found: list[int | None] = [None] * len(program.steps)
    forward = [(i, step) for i, step in enumerate(program.steps) if not backward[i]]
    seen: dict[int, int] = {}  # by the number of a value: the stage that it seems to be on
    for index, step in forward:
        came = [seen[v.number] for v in step.reads() if v.number in seen]
        stage = max(came, default=None)
        if not crosses(step):
            stage = found[index] = step.stage if step.stage is not None else stage
        elif stage is not None:  # the next stage there, until its readers say better
            there = ranks_of(step.outputs[0])
            after = [s for s, its in enumerate(ranks) if its == there and s > stage]
            stage = min(after, default=stage)
        if stage is not None:
            seen.update((value.number, stage) for value in step.outputs)
    users: dict[int, list[int]] = {}  # by the number of a value: the stages of its readers
    for index, step in reversed(forward):
        stage = found[index]
        if stage is None:
            readers = [s for value in step.outputs for s in users.get(value.number, ())]
            seems = seen.get(step.outputs[0].number)
            if seems is None:  # it reads no more than variables
                seems = _stage_on(ranks, step) or 0
            stage = found[index] = min(readers, default=seems)
        if not crosses(step):
            for value in step.reads():
                users.setdefault(value.number, []).append(stage)
    return found


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
        maker = made_by.get(step.gradient_of)
        stage = step.stage
        if maker is not None:
            forward = program.steps[maker]
            if crosses(forward) and not backward[maker]:
                stage = stage_of(forward.source)
                if stage is None:  # the gradient of a variable goes where that is
                    stage = _stage_on(ranks, step)
            if stage is None:
                stage = stages[maker]
        elif stage is None:
            came = [s for s in map(stage_of, step.reads()) if s is not None]
            stage = (max if step.recomputation else min)(came, default=_stage_on(ranks, step) or 0)
        stages[index] = stage


def _last(
    program: Program, ranks: Sequence[frozenset[int]], stages: Sequence[int | None]
) -> list[int]:
    """The indices of the steps that leave their stage for outputs alone, and of those after them.

    What computes there is on ranks of stages.
    """
    kept = [value for _, value in (*program.assigns, *program.gradients, *program.carried)]
    others = {value.number for value in kept}  # and what other steps read
    everywhere = frozenset[int]().union(*ranks)
    able: set[int] = set()
    for index, step in reversed(list(enumerate(program.steps))):
        somewhere = crosses(step) or ranks_of(step.outputs[0]) <= everywhere
        if somewhere and not draws(step) and others.isdisjoint(v.number for v in step.outputs):
            able.add(index)
        else:
            others.update(value.number for value in step.reads())
    found: list[int] = []
    made: set[int] = set()
    for index in sorted(able):
        step, stage = program.steps[index], stages[index]
        assert stage is not None
        leaves = crosses(step) and not ranks_of(step.outputs[0]) <= ranks[stage]
        if leaves or not made.isdisjoint(value.number for value in step.reads()):
            found.append(index)
            made.update(value.number for value in step.outputs)
    return found


def _stage_on(ranks: Sequence[frozenset[int]], step: ProgramStep) -> int | None:
    """The first stage that has the ranks of what a step makes."""
    there = ranks_of(step.outputs[0])
    return next((s for s, its in enumerate(ranks) if there is its or there <= its), None)


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
    its = ranks[step.stage]
    if crosses(step) or here is its or here <= its:
        return
    held = [repr(value) for value in step.reads() if value.name]
    reads = f", reading {', '.join(held)}" if held else ""
    raise OnefoldRuntimeError(
        f"{step.name} of {step.scope or 'build()'}, at {step.line}, runs on ranks {sorted(here)}"
        f"{reads}, but it is on stage {step.stage}, whose ranks are {sorted(its)}; "
        "make the module's parameters on its stage's ranks, or put the module on another stage"
    )


def _check_order(steps: Sequence[ProgramStep], backward: Sequence[bool]) -> None:
    made_by = {value.number: step for step in steps for value in step.outputs}
    for step, is_late in zip(steps, backward, strict=True):
        skipped = is_late or step.stage is None or crosses(step)
        for value in () if skipped else step.reads():
            before = made_by.get(value.number)
            while before is not None and crosses(before):
                before = made_by.get(before.source.number)
            if before is None:
                continue
            assert step.stage is not None and before.stage is not None
            if before.stage > step.stage:
                raise OnefoldRuntimeError(
                    f"{step.scope or 'build()'} is on stage {step.stage} but reads, at "
                    f"{step.line}, what {before.scope or 'build()'} on stage {before.stage} made "
                    f"at {before.line} ({show(before)}); number the stages in the order in which "
                    "data goes through them"
                )
