"""Lowers the segments of a staged program to calls, with the values to keep, send and free."""

from __future__ import annotations

from dataclasses import dataclass

from ..call_list import CallList, Places
from ..ir import Value
from .assign_stages import draws
from .partition import Part, Staged
from .state_order import first_readers

_ORDER = "FRPBIW"  # of the segments of one stage


@dataclass(slots=True)
class Lowered:
    """One segment, ready to run for any micro-batch."""

    calls: CallList
    first: CallList  # of the first micro-batch
    random: bool  # whether any of the calls draws random numbers
    refreshed: list[int]  # places of variables that an earlier micro-batch may have changed
    assigns: list[tuple[int, int]]  # (place of a variable, place of its new value)
    sums: list[tuple[int, Value]]  # to add to the totals
    carried: list[tuple[int, int, int]]  # totals that calls add to: places before, after; number
    dead: list[int]  # places to clear when the sums are taken
    drops: set[int]  # transfers from here after which their value is not needed any more


def lower(staged: Staged, places: Places) -> dict[Part, Lowered]:
    """The segments of all stages by part."""
    lowering = _Lowering(staged, places)
    return {part: lowering.lowered(part) for part in staged.segments}


class _Lowering:
    def __init__(self, staged: Staged, places: Places) -> None:
        self.staged = staged
        self.places = places
        self.sums = staged.sums_by_part()
        self.carried = staged.carried_by_part()
        self.kept = staged.kept()
        self.last = _last_parts(staged)
        self.assigns = staged.assigns_after()
        self.refreshed = first_readers(staged)

    def lowered(self, part: Part) -> Lowered:
        staged, place = self.staged, self.places.of
        steps = staged.segments[part]
        # By the number of a value that is sent from here, the last transfer of it.
        sent = {t.value.number: i for i, t in enumerate(staged.transfers) if t.source == part}
        sums, carried = self.sums.get(part, []), self.carried.get(part, [])
        totals = [*sums, *(value for _, value in carried)]
        later = sent.keys() | {value.number for value in totals}
        values = [v for step in steps for v in (*step.reads(), *step.outputs)]
        wanted = [v for v in values if v.number in later or not self._ends(v.number, part)]
        calls, first = self.places.calls(steps, wanted), staged.first(part)
        return Lowered(
            calls,
            calls if first is steps else self.places.calls(first, wanted),
            any(map(draws, steps)),
            [place(variable) for variable in self.refreshed.get(part, ())],
            [(place(variable), place(value)) for variable, value in self.assigns.get(part, ())],
            [(place(value), value) for value in sums],
            [(place(before), place(value), value.number) for before, value in carried],
            [
                place(value)
                for value in totals
                if value.number not in sent and self._ends(value.number, part)
            ],
            {i for number, i in sent.items() if self._ends(number, part)},
        )

    def _ends(self, number: int, part: Part) -> bool:
        """Whether nothing after this segment needs a value."""
        return self.last.get(number) == part and number not in self.kept


def _last_parts(staged: Staged) -> dict[int, Part]:
    """The last segment that needs each value; none when that differs between micro-batches."""
    return {
        number: max(parts, key=lambda part: _ORDER.index(part[0]))
        for number, parts in staged.users().items()
        if len({stage for _, stage in parts}) == 1
    }
