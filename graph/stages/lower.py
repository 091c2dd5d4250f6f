"""Lower: the segments of a staged program as calls, with what is kept, sent and dropped after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..executor import Call, Places
from ..ir import Step, Value
from .cut import Part, Staged, draws

_ORDER = "FBIW"  # of the segments of one stage


@dataclass(slots=True)
class Lowered:
    """One segment, ready to run for any micro-batch."""

    steps: Sequence[Step]
    calls: list[Call]
    random: bool  # whether any of the calls draws random numbers
    refreshed: list[int]  # places of variables that an earlier micro-batch may have changed
    assigns: list[tuple[int, int]]  # (place of a variable, place of its new value)
    sums: list[tuple[int, Value]]  # to add to the totals
    dead: list[int]  # places to clear when the sums are taken
    sends: list[int]  # transfers that start here
    drops: set[int]  # those of them after which their value is not needed any more


def lower(staged: Staged, places: Places) -> dict[Part, Lowered]:
    """The segments of all stages by part."""
    last = _last_parts(staged)
    program = staged.program
    kept = {value.number for value in program.outputs} | {v.number for _, v in program.assigns}
    sums = {value.number: value for value in staged.sums}
    made = _made(staged)
    assigns = staged.assigns_after()
    refreshed = _refreshed(staged, assigns)
    return {
        part: _Part(
            staged,
            part,
            places,
            last,
            kept,
            sums,
            made,
            assigns.get(part, []),
            refreshed.get(part, []),
        ).lowered()
        for part in made
    }


def _made(staged: Staged) -> dict[Part, list[Value]]:
    """The values that each segment makes or that arrive before it."""
    made = {
        part: [value for step in steps for value in step.outputs]
        for part, steps in staged.segments.items()
    }
    for transfer in staged.transfers:
        made[transfer.target].append(transfer.result)
    return made


def _last_parts(staged: Staged) -> dict[int, Part]:
    """The last segment that needs each value; none when that differs between micro-batches."""
    parts: dict[int, set[Part]] = {}
    for part, values in _made(staged).items():
        for value in values:
            parts.setdefault(value.number, set()).add(part)
    for part, steps in staged.segments.items():
        for step in steps:
            for value in step.reads():
                if value.number in parts:  # else it is there before
                    parts[value.number].add(part)
    for transfer in staged.transfers:
        parts[transfer.value.number].add(transfer.source)
    return {
        number: max(found, key=lambda part: _ORDER.index(part[0]))
        for number, found in parts.items()
        if len({stage for _, stage in found}) == 1
    }


def _refreshed(
    staged: Staged, assigns: dict[Part | None, list[tuple[Value, Value]]]
) -> dict[Part, list[Value]]:
    """For each segment the variables that it takes as the micro-batch before left them.

    The first segment to read a variable does, or else the one that changes it, since after that
    nobody could know what it was.
    """
    reads = {
        part: {value.number for step in steps for value in step.reads()}
        for part, steps in staged.segments.items()
        if part[0] == "F"
    }
    found: dict[Part, list[Value]] = {}
    for changer, pairs in assigns.items():
        for variable, _ in pairs if changer is not None else ():
            readers = (part for part, numbers in reads.items() if variable.number in numbers)
            found.setdefault(next(readers, changer), []).append(variable)
    return found


@dataclass(slots=True)
class _Part:
    staged: Staged
    part: Part
    places: Places
    last: dict[int, Part]
    kept: set[int]
    sums: dict[int, Value]
    made: dict[Part, list[Value]]
    assigns: list[tuple[Value, Value]]
    refreshed: list[Value]

    def lowered(self) -> Lowered:
        steps, place = self.staged.segments[self.part], self.places.of
        here = {value.number for value in self.made[self.part]}
        sends = [i for i, t in enumerate(self.staged.transfers) if t.source == self.part]
        sent = {self.staged.transfers[i].value.number: i for i in sends}  # the last transfer of it
        added = [(place(v), v) for n, v in self.sums.items() if n in here]
        later = sent.keys() | {v.number for _, v in added}
        return Lowered(
            steps,
            self._calls(steps, later),
            any(map(draws, steps)),
            [place(value) for value in self.refreshed],
            [(place(variable), place(value)) for variable, value in self.assigns],
            added,
            [p for p, v in added if v.number not in sent and self._ends(v.number)],
            sends,
            {i for number, i in sent.items() if self._ends(number)},
        )

    def _ends(self, number: int) -> bool:
        """Whether nothing after this segment needs a value."""
        return self.last.get(number) == self.part and number not in self.kept

    def _calls(self, steps: Sequence[Step], later: set[int]) -> list[Call]:
        final: dict[int, tuple[int, Value]] = {}
        for index, step in enumerate(steps):
            for value in (*step.reads(), *step.outputs):
                final[value.number] = index, value
        dead: dict[int, list[Value]] = {}
        for number, (index, value) in final.items():
            if self._ends(number) and number not in later:
                dead.setdefault(index, []).append(value)
        return [self.places.call(step, dead.get(i, ())) for i, step in enumerate(steps)]
