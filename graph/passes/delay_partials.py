"""Delays the reduction of partial sums past linear ops, where this saves bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...engine.meta import Meta
from ...engine.op import Op
from ...engine.signature_choice import op_time, signatures_along
from ..ir import Program, ProgramStep, Value
from .pass_utils import (
    box,
    is_boxing,
    is_inexact,
    received,
    relaid,
    same_bits,
    time,
    together,
    uses,
)

_NUMBERS = (int, float, complex, bool, type(None))


def delay_partials(program: Program, exact: bool = True) -> Program:
    """The program in which sums over ranks are computed where they move the fewest bytes.

    A value that is boxed from a partial layout and read by one linear op is boxed after the op
    instead, with the other inputs laid out as the op's own rule says: two reduced values are added
    before one reduction, and a sum over a dim comes before the reduction of what is left. It goes
    on past several ops, and is done only where that saves both bytes and modeled time. Never
    past an op that draws random numbers, whose rule has no signature for partials, or a cast that
    loses digits. With `exact` only past ops that give their input's own elements back, and past
    those on integers: other sums get another order.
    """
    found = _Search(program, exact).first(0)
    while found is not None:
        program = _applied(program, *found)
        found = _Search(program, exact).first(found[0])
    return program


@dataclass(frozen=True)
class _Pass:
    """A step in layouts in which its output is partial along an axis."""

    index: int  # of the step
    inputs: tuple[tuple[Value, Meta] | None, ...]  # what each input is boxed from, and to what
    output: Meta
    extra: float  # seconds for its inputs and the op itself, less those that it took before
    moved: int  # the same for the bytes of its inputs


class _Search:
    """Finds the first reduction of a program that should be delayed."""

    def __init__(self, program: Program, exact: bool) -> None:
        self.program = program
        self.exact = exact
        self.uses = uses(program)
        self.makers = program.makers()
        self.readers: dict[int, int] = {}  # by number: the last step that reads the value
        for index, step in enumerate(program.steps):
            self.readers.update((value.number, index) for value in step.reads())

    def first(self, begin: int) -> tuple[int, list[_Pass]] | None:
        """The index of the reduction, from `begin` on, and the steps past which it is delayed."""
        for index, step in enumerate(self.program.steps[begin:], begin):
            if not is_boxing(step):
                continue
            old, new = step.source.meta, step.outputs[0].meta
            if old.placement is not new.placement or (self.exact and not same_bits(old, new)):
                continue
            for axis, (before, after) in enumerate(zip(old.nd_sbp, new.nd_sbp, strict=True)):
                if before.is_partial and not after.is_partial:
                    passes = self._best(step, axis)
                    if passes:
                        return index, passes
        return None

    def _best(self, step: ProgramStep, axis: int) -> list[_Pass]:
        """The steps past which the reduction takes the least time; none if it should stay."""
        start, (made,) = step.source, step.outputs
        now = {made.number: start}
        least, bytes_now = _cost(start.meta, made.meta)
        spent, moved = 0.0, 0
        passes: list[_Pass] = []
        best: list[_Pass] = []
        while self.uses[made.number] == 1 and made.number in self.readers:
            index = self.readers[made.number]
            reader = self.program.steps[index]
            found = self._pass(index, reader, now, axis) if together(reader, step) else None
            if found is None:
                break
            passes.append(found)
            made = reader.outputs[0]
            now = {made.number: Value(-1, found.output)}
            if self.exact and made.meta.nd_sbp[axis].is_partial:
                break  # cut into addends again, which would be others
            spent, moved = spent + found.extra, moved + found.moved
            seconds, count = _cost(found.output, made.meta)
            if spent + seconds < least and moved + count < bytes_now:
                best, least = passes.copy(), spent + seconds
        return best

    def _pass(
        self, index: int, step: ProgramStep, now: dict[int, Value], axis: int
    ) -> _Pass | None:
        """The step with partial output along the axis; None if no signature has that."""
        op = step.op
        plain = all(type(v) in (Value, *_NUMBERS) for v in step.inputs)
        if op is None or not plain or len(step.outputs) != 1 or not step.repeatable:
            return None
        (output,) = step.outputs
        if self.exact and not _keeps_elements(op, step):
            return None
        placement = output.meta.placement
        metas = step.input_metas
        if placement is None or any(m is not None and m.placement is not placement for m in metas):
            return None
        given = [v.meta if type(v) is Value else v for v in step.inputs]
        reduced, start = next(
            (i, now[v.number])
            for i, v in enumerate(step.inputs)
            if type(v) is Value and v.number in now
        )
        kind = start.meta.nd_sbp[axis]
        found: list[_Pass] = []
        for new, (made,) in signatures_along(op, given, metas, (output.meta,), step.attrs, axis):
            read = new[reduced]
            assert read is not None
            if read.nd_sbp[axis] is kind and made.nd_sbp[axis].is_partial:
                passed = self._laid(index, op, now, new, made)
                found += [] if passed is None else [passed]
        return min(found, key=lambda each: each.extra, default=None)

    def _laid(
        self, index: int, op: Op, now: dict[int, Value], new: Sequence[Meta | None], made: Meta
    ) -> _Pass | None:
        """The step on inputs in these layouts; None if these are not available."""
        step = self.program.steps[index]
        inputs: list[tuple[Value, Meta] | None] = []
        extra, moved = 0.0, 0
        for value, target in zip(step.inputs, new, strict=True):
            if target is None or type(value) is not Value:
                inputs.append(None)
                continue
            start = now.get(value.number)
            if start is None:
                start, seconds, count = self._boxed(value, target)
            else:
                seconds, count = _cost(start.meta, target)
            if self.exact and not same_bits(start.meta, target):
                return None
            extra, moved = extra + seconds, moved + count
            inputs.append((start, target))
        if op.decompose(tuple(new), step.attrs) is not None:
            return None
        extra += op_time(op, new, (made,)) - op_time(op, step.input_metas, step.output_metas)
        return _Pass(index, tuple(inputs), made, extra, moved)

    def _boxed(self, value: Value, target: Meta) -> tuple[Value, float, int]:
        """The source to box another input from, with the additional seconds and bytes."""
        seconds, count = _cost(value.meta, target)
        maker = self.makers.get(value.number)
        if maker is None or not is_boxing(maker) or value.meta is target:
            return value, seconds, count
        start = maker.source
        if start.meta.placement is not target.placement:
            return value, seconds, count
        direct, direct_count = _cost(start.meta, target)
        if self.uses[value.number] == 1:
            saved, saved_count = _cost(start.meta, value.meta)
            direct, direct_count = direct - saved, direct_count - saved_count
        return (start, direct, direct_count) if direct < seconds else (value, seconds, count)


def _cost(src: Meta, dst: Meta) -> tuple[float, int]:
    """Modeled seconds of a boxing, and the bytes that it moves."""
    return time(src, dst), received(src, dst)


def _keeps_elements(op: Op, step: ProgramStep) -> bool:
    """Whether the result consists of the inputs' own elements, or of exact numbers."""
    values = (*step.reads(), *step.outputs)
    return op.aliases or not any(is_inexact(value.meta.dtype) for value in values)


def _applied(program: Program, at: int, passes: list[_Pass]) -> Program:
    """The program with the reduction delayed; unused steps are still in it."""
    numbers = program.free_numbers()
    reduction = program.steps[at]
    partial: dict[int, Value] = {reduction.outputs[0].number: reduction.source}
    by_index = {passed.index: passed for passed in passes}
    steps: list[ProgramStep] = []
    for index, step in enumerate(program.steps):
        passed = by_index.get(index)
        if passed is None:
            steps.append(step)
            continue
        inputs: list[object] = []
        for value, laid in zip(step.inputs, passed.inputs, strict=True):
            if laid is None or type(value) is not Value:
                inputs.append(value)
                continue
            start = partial.get(value.number, laid[0])
            if start.meta is not laid[1]:
                boxed = Value(next(numbers), laid[1])
                steps.append(box(start, boxed, step))
                start = boxed
            inputs.append(start)
        (old,) = step.outputs
        made = Value(next(numbers), passed.output)
        steps.append(relaid(step, tuple(inputs), (made,)))
        partial[old.number] = made
        if passed is passes[-1]:
            steps.append(box(made, old, step))
    return replace(program, steps=steps)
