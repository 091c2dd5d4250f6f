"""Merges two successive boxings into one, where the direct boxing is not more expensive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..ir import Program, ProgramStep, Value
from .pass_utils import box, is_boxing, same_bits, time, together, uses


def merge_boxings(program: Program, exact: bool = True) -> Program:
    """The program in which boxings start from the source of an earlier one, where that saves time.

    A value that is boxed back to an earlier layout is replaced by the earlier value. A layout in
    between that has other uses stays, and its time counts as spent. Unused steps are left to
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
            step = step.substitute(self.same)
            merged = self._merged(step) if is_boxing(step) else step
            if merged is not None:
                steps.append(merged)
                self.makers.update((value.number, merged) for value in merged.outputs)
        return self.program.substitute(steps, self.same)

    def _merged(self, step: ProgramStep) -> ProgramStep | None:
        """The boxing from the best start; None if its value is there already."""
        (made,) = step.outputs
        best, least = step.source, time(step.source.meta, made.meta)
        for start, saved in self._starts(step):
            spent = time(start.meta, made.meta) - saved
            if spent <= least:
                best, least = start, spent
        if best is step.source:
            return step
        self._unused(step.source)
        if best.meta is made.meta:
            self.same[made.number] = best
            self.uses[best.number] += self.uses[made.number]
            return None
        self.uses[best.number] += 1
        return replace(box(best, made, step), asked=step.asked)

    def _starts(self, step: ProgramStep) -> Iterator[tuple[Value, float]]:
        """The values that it was boxed from, in turn, with the time of steps that become unused."""
        value, saved, only = step.source, 0.0, True
        way = [step.outputs[0].meta, value.meta]
        while True:
            maker = self.makers.get(value.number)
            if maker is None or not is_boxing(maker) or not together(maker, step):
                return
            only = only and self.uses[value.number] == 1
            start = maker.source
            if step.stage is not None and not self._stays(start, value, step):
                return
            saved += time(start.meta, value.meta) * only
            way.append(start.meta)
            value = start
            if not self.exact or same_bits(*reversed(way)):
                yield value, saved

    def _stays(self, start: Value, value: Value, step: ProgramStep) -> bool:
        """Whether the boxing does not cross between stages, where the program is cut."""
        maker = self.makers.get(start.number)
        here = start.meta.placement is value.meta.placement
        return here and (maker is None or maker.stage == step.stage)

    def _unused(self, value: Value) -> None:
        """Remove one use, and those of boxings that are no longer needed."""
        self.uses[value.number] -= 1
        maker = self.makers.get(value.number)
        if not self.uses[value.number] and maker is not None and is_boxing(maker):
            self._unused(maker.source)
