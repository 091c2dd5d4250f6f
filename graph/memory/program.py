"""The events of a program on one rank: what each step allocates there, and what it is last to use."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..ir import Program, Step, Value
from .liveness import Event, Key
from .storages import Form, Storages, position_of, whole

Lane: TypeAlias = Hashable  # which of several runs of a step, such as a micro-batch


@dataclass(frozen=True, slots=True)
class Work:
    """A step, and the lane in which it is run: its values are those of the same lane."""

    step: Step
    lane: Lane = None


def events_of(
    work: Sequence[Work],
    rank: int,
    given: Iterable[tuple[Value, Lane]] = (),
    shared: Iterable[Value] = (),
    wanted: Iterable[tuple[Value, Lane]] = (),
) -> list[Event]:
    """One event for each piece of work, in the order in which the executor does it.

    `given` (inputs) and `shared` values (variables, the same in every lane) are there before and
    are not counted, nor is what only looks at their memory. `wanted` values stay to the end. A
    view shares the buffer of what it is a view of, which is there until the last use of either.
    Kernels' own temporaries are not known here.
    """
    storages = Storages(rank)
    common = {value.number for value in shared}

    def name(value: Value, lane: Lane) -> tuple[int, Lane]:
        return value.number, None if value.number in common else lane

    home: dict[Key, Key | None] = {}  # the buffer that a value lies in; None: not the program's
    forms: dict[Key, Form | None] = {}
    for value, lane in (*given, *((value, None) for value in shared)):
        position = position_of(value.meta, rank)
        forms[name(value, lane)] = None if position is None else whole(value.meta, position)
        home[name(value, lane)] = None
    made: list[list[tuple[Key, int]]] = []
    last: dict[Key, int] = {}
    for index, each in enumerate(work):
        step, lane = each.step, each.lane
        names = [name(v, lane) if type(v) is Value else None for v in step.inputs]
        last.update((home[n], index) for n in names if n is not None and home[n] is not None)
        new: dict[Key, int] = {}
        found = storages.made(step, [None if n is None else forms[n] for n in names])
        for value, here in zip(step.outputs, found, strict=True):
            own = name(value, lane)
            home[own], forms[own] = None, None
            if here is None:
                continue
            forms[own] = here.form
            if here.source >= 0:
                source = names[here.source]
                assert source is not None
                home[own] = home[source]
            else:
                # Named after the first output that lies in it.
                first = next(o for o, f in zip(step.outputs, found, strict=True)
                             if f is not None and f.source < 0 and f.group == here.group)
                home[own] = name(first, lane)
                new[home[own]] = here.nbytes
            if home[own] is not None:
                last[home[own]] = index
        made.append([item for item in new.items() if item[1]])
    kept = {home[name(value, lane)] for value, lane in wanted}
    freed: list[list[Key]] = [[] for _ in work]
    for key in dict.fromkeys(key for items in made for key, _ in items):
        if key not in kept:
            freed[last[key]].append(key)
    return [
        Event(each.step.name, tuple(items), tuple(ends))
        for each, items, ends in zip(work, made, freed, strict=True)
    ]


def program_events(program: Program, rank: int) -> list[Event]:
    """The events of one run of a program."""
    return events_of(
        [Work(step) for step in program.steps],
        rank,
        [(value, None) for value in program.inputs],
        [variable.value for variable in program.variables],
        [(value, None) for value in program.wanted()],
    )
