"""ZeRO: reduces gradients to shards, and gathers split parameters where they are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch

from ...engine import boxing
from ...engine.boxing import BoxingPlan
from ...engine.inplace import dense_copies
from ...engine.meta import Meta
from ...engine.tensor import Shards
from ..boxing_calls import boxing_step
from ..ir import Program, ProgramStep, Value, Variable

_ALWAYS = ("always",)
_END = ("end",)
_SHARDS = ("shards",)


def shard_gradients(program: Program, targets: Mapping[str, Meta]) -> Program:
    """The program whose gradients of these variables are boxed to the targets' layouts.

    Each is boxed directly after it is made, so no two unreduced gradients have to be live at the
    same time.
    """
    numbers = program.free_numbers()
    boxed: dict[int, list[ProgramStep]] = {}
    made: dict[tuple[int, Meta], Value] = {}
    gradients = []
    for variable, value in program.gradients:
        layout = targets.get(variable.value.name, value.meta).nd_sbp
        target = value.meta.like(nd_sbp=layout)
        if target is not value.meta:
            key = value.number, target
            if key not in made:
                made[key] = Value(next(numbers), target)
                boxed.setdefault(value.number, []).append(copied_boxing(value, made[key]))
            value = made[key]
        gradients.append((variable, value))
    steps = []
    for step in program.steps:
        steps.append(step)
        for output in step.outputs:
            steps += [_placed(box, step) for box in boxed.pop(output.number, ())]
    steps += [box for left in boxed.values() for box in left]  # of variables and inputs
    return replace(program, steps=steps, gradients=gradients)


def gather_parameters(program: Program, targets: Mapping[str, Meta], keep: bool = False) -> Program:
    """The program in which these variables are shards, gathered for the steps that use them.

    They are gathered once for each module in forward and once in backward, together with the
    recomputation of a checkpoint; with `keep` they are gathered once.
    """
    return _ParameterGatherer(program, targets, keep).run()


class _ParameterGatherer:
    """One run of `gather_parameters`."""

    def __init__(self, program: Program, targets: Mapping[str, Meta], keep: bool) -> None:
        self.program = program
        self.keep = keep
        self.numbers = program.free_numbers()
        self.shards: dict[int, Value] = {}  # by the number of the whole variable: its shards
        self.views: dict[int, ProgramStep] = {}  # by number: what makes a view of a whole variable
        self.made: dict[tuple[int, object], Value] = {}  # by number and group: what steps read
        self.steps: list[ProgramStep] = []
        self.variables: dict[int, Variable] = {}
        for variable in program.variables:
            value = variable.value
            target = targets.get(value.name)
            if target is not None:
                self.shards[value.number] = Value(next(self.numbers), target, value.name)
                variable = Variable(self.shards[value.number], variable.tensor)
            self.variables[value.number] = variable

    def run(self) -> Program:
        for step in self.program.steps:
            if self._is_view(step):
                # It would keep the whole value from forward to backward, so it is recomputed.
                self.views[step.outputs[0].number] = step
                continue
            self.steps.append(self._reading(step, step, self._group(step)))
        ends = {value.number: self._for(value, None, _END) for value in self.program.wanted()}
        # The list itself: what follows adds to it.
        program = self.program.substitute(self.steps, ends)
        return replace(
            program,
            variables=list(self.variables.values()),
            assigns=[self._assigned(*pair) for pair in program.assigns],
            gradients=[(self.variables[v.value.number], value) for v, value in program.gradients],
        )

    def _group(self, step: ProgramStep) -> object:
        if self.keep:
            return _ALWAYS
        return step.scope, step.stage, step.backward or step.recomputation > 0

    def _is_view(self, step: ProgramStep) -> bool:
        reads = [value.number for value in step.reads()]
        known = len(reads) == 1 and (reads[0] in self.shards or reads[0] in self.views)
        if not known or step.outputs[0].meta.placement is not step.source.meta.placement:
            return False
        return (step.aliases or step.name == "cast") and len(step.outputs) == 1

    def _for(self, value: Value, user: ProgramStep | None, group: object) -> Value:
        """The replacement of a value in a group of steps, made here if it does not exist yet."""
        shards, view = self.shards.get(value.number), self.views.get(value.number)
        if shards is None and view is None:
            return value
        key = value.number, group
        if key not in self.made:
            if shards is None and view is not None:
                shards = self._cast(view)
            made = self.made[key] = Value(next(self.numbers), value.meta)
            if shards is not None:
                step = copied_boxing(shards, made)
            else:
                assert view is not None
                step = replace(self._reading(view, user, group), outputs=(made,))
            self.steps.append(step if user is None else _placed(step, user))
        return self.made[key]

    def _reading(self, step: ProgramStep, user: ProgramStep | None, group: object) -> ProgramStep:
        """The step on the replacements of its inputs in a group of steps."""
        there = {value.number: self._for(value, user, group) for value in step.reads()}
        return step.substitute(there)

    def _cast(self, step: ProgramStep) -> Value | None:
        """The shards of a cast variable, which are fewer bytes to gather; None for other views."""
        shards = self.shards.get(step.source.number)
        dtype = step.outputs[0].meta.dtype
        if shards is None or step.name != "cast" or not dtype.is_floating_point:
            return None
        key = step.outputs[0].number, _SHARDS
        if key not in self.made:
            made = self.made[key] = Value(next(self.numbers), shards.meta.like(dtype=dtype))
            run = partial(_cast_shards, dtype)
            self.steps.append(replace(step, inputs=(shards,), outputs=(made,), run=run))
        return self.made[key]

    def _assigned(self, variable: Variable, value: Value) -> tuple[Variable, Value]:
        shards = self.shards.get(variable.value.number)
        if shards is not None:
            whole, value = value, Value(next(self.numbers), shards.meta)
            self.steps.append(copied_boxing(whole, value))
        return self.variables[variable.value.number], value


def _placed(step: ProgramStep, user: ProgramStep) -> ProgramStep:
    """The step with the module, stage and line of `user`."""
    return replace(
        step, scope=user.scope, backward=user.backward, recomputation=user.recomputation,
        stage=user.stage, line=user.line,
    )  # fmt: skip


def copied_boxing(value: Value, made: Value, scope: str = "") -> ProgramStep:
    """A boxing step; it is never merged with another, and its result is memory of its own."""
    step = replace(boxing_step(value, made, "zero"), scope=scope, repeatable=False)
    if not step.aliases:
        return step
    run = partial(_copied, boxing.plan(value.meta, made.meta))
    return replace(step, run=run, start=None, aliases=False)


def _copied(plan: BoxingPlan, shards: Shards) -> Shards:
    return dense_copies(boxing.run(plan, shards, op="zero"))


def _cast_shards(dtype: torch.dtype, shards: Shards) -> Shards:
    return tuple([part.to(dtype) for part in shards])
