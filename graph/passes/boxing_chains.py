"""Merges two successive boxings into one, where the direct boxing is not more expensive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..ir import Program, ProgramStep, Value, Variable
from .pass_utils import box, is_boxing, same_bits, source_of, time, together, uses


def merge_boxings(program: Program, exact: bool = True) -> Program:
    """The program in which boxings start from where their value came from, where that saves time.

    What is boxed back to a layout that it had is that earlier value. A layout in between that has
    other uses stays, and its time counts as spent. The steps that are then without use remain for
    `eliminate_dead`. With `exact` only where the shards stay the same bit for bit: not where sums
    of floating numbers get another order, or where a value is cut into addends on the way.
    """
    return _BoxingMerger(program, exact).run()


class _BoxingMerger:
    """One run of `merge_boxings`."""

    def __init__(self, program: Program, exact: bool) -> None:
        self.program = program
        self.exact = exact
        self.uses = uses(program)
        self.makers: dict[int, ProgramStep] = {}
        self.same: dict[int, Value] = {}  # by number: the earlier value to use instead

    def run(self) -> Program:
        steps = []
        for step in self.program.steps:
            step = replace(step, inputs=tuple([self._now(value) for value in step.inputs]))
            merged = self._merged(step) if is_boxing(step) else step
            if merged is not None:
                steps.append(merged)
                self.makers.update((value.number, merged) for value in merged.outputs)
        program = self.program
        return replace(
            program,
            steps=steps,
            outputs=[self._now(value) for value in program.outputs],
            assigns=self._ends(program.assigns),
            gradients=self._ends(program.gradients),
        )

    def _now(self, value: Any) -> Any:
        return self.same.get(value.number, value) if type(value) is Value else value

    def _ends(self, pairs: list[tuple[Variable, Value]]) -> list[tuple[Variable, Value]]:
        return [(variable, self._now(value)) for variable, value in pairs]

    def _merged(self, step: ProgramStep) -> ProgramStep | None:
        """The boxing from the best start; None if its value is there already."""
        (made,) = step.outputs
        best, least = source_of(step), time(source_of(step).meta, made.meta)
        for start, saved in self._starts(step):
            spent = time(start.meta, made.meta) - saved
            if spent <= least:
                best, least = start, spent
        if best is source_of(step):
            return step
        self._unused(source_of(step))
        if best.meta is made.meta:
            self.same[made.number] = best
            self.uses[best.number] += self.uses[made.number]
            return None
        self.uses[best.number] += 1
        return replace(box(best, made, step), asked=step.asked)

    def _starts(self, step: ProgramStep) -> Iterator[tuple[Value, float]]:
        """What the value was boxed from, and so on, with the time of steps not needed then."""
        way = [step.outputs[0].meta, source_of(step).meta]
        value, saved, only = source_of(step), 0.0, True
        while True:
            maker = self.makers.get(value.number)
            if maker is None or not is_boxing(maker) or not together(maker, step):
                return
            only = only and self.uses[value.number] == 1
            start = source_of(maker)
            if step.stage is not None and not self._stays(start, value, step):
                return
            saved += time(start.meta, value.meta) * only
            way.append(start.meta)
            value = start
            if not self.exact or same_bits(*reversed(way)):
                yield value, saved

    def _stays(self, start: Value, value: Value, step: ProgramStep) -> bool:
        """Whether nothing crosses between stages, where the program is cut."""
        maker = self.makers.get(start.number)
        here = start.meta.placement is value.meta.placement
        return here and (maker is None or maker.stage == step.stage)

    def _unused(self, value: Value) -> None:
        """Count one use less, and those of boxings that nothing needs any more."""
        self.uses[value.number] -= 1
        maker = self.makers.get(value.number)
        if not self.uses[value.number] and maker is not None and is_boxing(maker):
            self._unused(source_of(maker))
