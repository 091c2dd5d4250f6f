"""Slopes after batch norm and group norm: backward recomputes an activation from the norm's input.

Applies where Triton does the work. The sums over channels and the gradient of the norm read that
input anyway. Each then computes the activation's gradient for itself, which no kernel writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..ir import Program, ProgramStep, Value
from .fuse_chains import why_not_fused
from .fusion_groups import is_pointwise, lies_alike
from .norm_sums import NormSums
from .pass_utils import same_segment, together
from .recompute_pointwise import MAX_RECOMPUTED


def recompute_slopes(program: Program) -> Program:
    """The program in which steps after a norm read its input, and not its activation."""
    found = _Slopes(program)
    for step in program.steps:
        sums = NormSums.of(step)
        if sums is not None:
            found.add(sums)
    if not found.gone:
        return program
    steps: list[ProgramStep] = []
    for step in program.steps:
        if step not in found.gone:
            steps += found.made.get(step, (step,))
    return replace(program, steps=steps)


@dataclass(slots=True)
class _Slopes:
    """The steps that make an activation's gradient, and the replacements of its readers."""

    program: Program
    gone: set[ProgramStep] = field(default_factory=set)
    made: dict[ProgramStep, list[ProgramStep]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(init=False)
    _makers: dict[int, ProgramStep] = field(init=False)
    _readers: dict[int, list[ProgramStep]] = field(init=False)
    _wanted: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self._numbers, self._makers = self.program.free_numbers(), self.program.makers()
        self._readers = defaultdict(list)
        for step in self.program.steps:
            for value in {value.number: value for value in step.reads()}.values():
                self._readers[value.number].append(step)
        self._wanted = frozenset(value.number for value in self.program.wanted())

    def add(self, sums: NormSums) -> None:
        """Replace the readers of the gradient that a step sums, if all of them read x."""
        slope = sums.dy
        maker = self._makers.get(slope.number)
        if maker is None or slope.number in self._wanted or not _is_fusible(maker, sums.step):
            return
        readers = self._readers[slope.number]
        if not all(self._reads(reader, sums.x, sums.step) for reader in readers):
            return
        before = self._behind_all(maker, sums)
        if before is None:
            return
        self.gone.add(maker)
        for reader in readers:
            self.made[reader] = self._repeated((*before, maker), reader)

    def _reads(self, reader: ProgramStep, x: Value, sums: ProgramStep) -> bool:
        """Whether a step that reads the gradient reads x too, and can compute the former."""
        fusible = reader is sums or _is_fusible(reader, sums)
        return fusible and x in tuple(reader.reads()) and reader not in self.made

    def _behind_all(self, maker: ProgramStep, sums: NormSums) -> tuple[ProgramStep, ...] | None:
        """The steps of forward that are repeated, so that few tensors but x are read."""
        found: dict[ProgramStep, None] = {}
        for value in maker.reads():
            behind = self._behind(value, sums, maker)
            found.update(dict.fromkeys(behind or ()))
        return tuple(found) if 0 < len(found) < MAX_RECOMPUTED else None

    def _behind(
        self, value: Value, sums: NormSums, like: ProgramStep
    ) -> tuple[ProgramStep, ...] | None:
        """The steps of forward that make a value from x and vectors of channels, if any."""
        if value is sums.x or sums.is_vector(value):
            return ()
        maker = self._makers.get(value.number)
        if maker is None or maker.backward or not together(maker, like):
            return None
        if not (
            is_pointwise(maker) and not why_not_fused(maker) and lies_alike(value.meta, sums.x.meta)
        ):
            return None
        found: dict[ProgramStep, None] = {}
        for each in maker.reads():
            behind = self._behind(each, sums, like)
            if behind is None:
                return None
            found.update(dict.fromkeys(behind))
        return (*found, maker)

    def _repeated(self, steps: tuple[ProgramStep, ...], reader: ProgramStep) -> list[ProgramStep]:
        """The recomputed steps, and the reader of the last of them."""
        recomputed: dict[int, Value] = {}
        made = []
        for step in steps:
            (old,) = step.outputs
            value = Value(next(self._numbers), old.meta)
            value.scope, value.line = old.scope, old.line
            made.append(replace(step.substitute(recomputed), outputs=(value,), backward=True))
            recomputed[old.number] = value
        return [*made, reader.substitute(recomputed)]


def _is_fusible(step: ProgramStep, like: ProgramStep) -> bool:
    return is_pointwise(step) and not why_not_fused(step) and same_segment(step, like)
