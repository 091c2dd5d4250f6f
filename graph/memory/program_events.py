"""Memory events of a program on one rank: what each step allocates and frees."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from ..async_boxing import steps_with_async_boxing
from ..ir import Program, ProgramStep, Value
from .liveness import Event, Key
from .storages import Form, Storages, position_of, whole

Lane: TypeAlias = Hashable  # which of several runs of a step, such as a micro-batch


class Work(NamedTuple):
    """A step and the lane in which it runs: it uses the values of this lane.

    A step that reads from other lanes names one for each of its inputs. A step without outputs only
    keeps its inputs live until then.
    """

    step: ProgramStep
    lane: Lane = None
    reads: tuple[Lane, ...] | None = None


def events_of(
    work: Sequence[Work],
    rank: int,
    given: Iterable[tuple[Value, Lane]] = (),
    shared: Iterable[Value] = (),
    wanted: Iterable[tuple[Value, Lane]] = (),
) -> list[Event]:
    """One event for each piece of work, in the order in which the executor does it.

    `given` (inputs) and `shared` values (variables, the same in every lane) exist before and are
    not counted, and neither are views of them. `wanted` values stay to the end. A
    view shares the buffer of its base, which is freed after the last use of either.
    Kernels' own temporaries are not known here.
    """
    storages = Storages(rank)
    common = {value.number for value in shared}

    def name(value: Value, lane: Lane) -> tuple[int, Lane]:
        return value.number, None if value.number in common else lane

    home: dict[Key, Key | None] = {}  # the buffer that a value lies in; None: not the program's
    forms: dict[Key, Form | None] = {}
    for value, lane in (*given, *((value, None) for value in shared)):
        position, own = position_of(value.meta, rank), name(value, lane)
        forms[own] = None if position is None else whole(value.meta, position)
        home[own] = None
    made: list[list[tuple[Key, int]]] = []
    last: dict[Key, int] = {}
    for index, (step, lane, reads) in enumerate(work):
        lanes = reads or (lane,) * len(step.inputs)
        names = [
            name(v, of) if type(v) is Value else None
            for v, of in zip(step.inputs, lanes, strict=True)
        ]
        for n, meta in zip(names, step.input_metas, strict=True):
            if n is not None and meta is not None and n not in home:
                assert position_of(meta, rank) is None, f"value {n} is not there yet"
                home[n], forms[n] = None, None  # of a stage on other ranks
        last.update((home[n], index) for n in names if n is not None and home[n] is not None)
        new: dict[Key, int] = {}
        named: dict[int, Key] = {}  # new memory after the first output that lies in it
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
                home[own] = named.setdefault(here.group, own)
                new[home[own]] = here.nbytes
            if home[own] is not None:
                last[home[own]] = index
        made.append([item for item in new.items() if item[1]])
    kept = {home.get(name(value, lane)) for value, lane in wanted}
    freed: list[list[Key]] = [[] for _ in work]
    for key in dict.fromkeys(key for items in made for key, _ in items):
        if key not in kept:
            freed[last[key]].append(key)
    return [
        Event(each.step.name, tuple(items), tuple(ends))
        for each, items, ends in zip(work, made, freed, strict=True)
    ]


def call_events(program: Program, rank: int) -> list[Event]:
    """What a graph without stages does in one call: see `steps_with_async_boxing`."""
    return events_of(
        [Work(step) for step in steps_with_async_boxing(program)],
        rank,
        [(value, None) for value in program.inputs],
        [*(variable.value for variable in program.variables), *program.states],
        [(value, None) for value in program.wanted()],
    )


def planned(
    name: str, inputs: Iterable[Value], outputs: tuple[Value, ...] = (), aliases: bool = False
) -> ProgramStep:
    """A step that is only planned. Without outputs it only frees its inputs."""
    return ProgramStep(name, name, tuple(inputs), (), outputs, _never, aliases=aliases)


def _never(*_: object) -> None:
    raise AssertionError("this step is only planned")
