"""Unit links: what keeps units on one stage, and the parameters that several units have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from ..graph.ir import Program
from ..graph.memory_traffic import local_bytes
from .unit_activations import UnitOf

Link: TypeAlias = tuple[str, str]  # two units


def joined_units(
    captured: Program, unit_of: UnitOf, first: str, inputs: Sequence[str]
) -> set[Link]:
    """The pairs of units from which the model itself reads values together in forward.

    What a module is called with is sent to its stage, but what is between modules runs where its
    inputs are. Parameters and buffers outside the units are on the stage of the `first` one; the
    `inputs` of a step on that of the unit that reads them first.
    """
    owner = {value.number: unit for value, unit in zip(captured.inputs, inputs, strict=True)}
    for variable in captured.variables:
        owner[variable.value.number] = unit_of(variable.value.name) or first
    found: set[Link] = set()
    for step in captured.steps:
        if step.backward:
            continue
        unit = unit_of(step.scope)
        if unit is None:
            units = [owner[value.number] for value in step.reads() if value.number in owner]
            found.update((units[0], other) for other in units[1:] if other != units[0])
            unit = units[-1] if units else None
        if unit is not None:
            owner.update((value.number, unit) for value in step.outputs)
    return found


def borrowed_weights(captured: Program, unit_of: UnitOf) -> dict[str, dict[str, int]]:
    """By unit, and by the unit that has them, the bytes of parameters that it reads of others."""
    variables = {variable.value.number: variable.value for variable in captured.variables}
    found: dict[str, dict[int, None]] = {}
    for step in captured.steps:
        unit = None if step.backward else unit_of(step.scope)
        if unit is not None:
            read = found.setdefault(unit, {})
            read.update(dict.fromkeys(v.number for v in step.reads() if v.number in variables))
    borrowed: dict[str, dict[str, int]] = {}
    for unit, read in found.items():
        for value in map(variables.__getitem__, read):
            owner = unit_of(value.name)
            if owner is not None and owner != unit:
                of = borrowed.setdefault(unit, {})
                of[owner] = of.get(owner, 0) + local_bytes(value.meta, 0)
    return borrowed


def blocks_of(order: Sequence[str], links: Iterable[Link]) -> tuple[tuple[str, ...], ...]:
    """Runs of units between which a stage may end: those that are linked are in one.

    >>> blocks_of(["tokens", "places", "layer", "head"], [("tokens", "places")])
    (('tokens', 'places'), ('layer',), ('head',))
    """
    place = {name: at for at, name in enumerate(order)}
    last = list(range(len(order)))  # of the block of each unit, at least
    for one, other in links:
        low, high = sorted((place[one], place[other]))
        last[low] = max(last[low], high)
    return tuple(_runs(order, last))


def _runs(order: Sequence[str], last: Sequence[int]) -> Iterator[tuple[str, ...]]:
    start = end = 0
    for at in range(len(order)):
        end = max(end, last[at])
        if at == end:
            yield tuple(order[start : at + 1])
            start = end = at + 1


def in_whole(links: Iterable[Link], whole: Mapping[str, Sequence[str]]) -> Iterator[Link]:
    """Links of a smaller model as those of the whole, in which its units are one or several.

    >>> list(in_whole([("tokens", "layers.1")], {"layers.1": ["layers.1", "layers.2"]}))
    [('tokens', 'layers.1'), ('tokens', 'layers.2')]
    """
    for pair in links:
        names = [name for each in pair for name in whole.get(each, (each,))]
        yield from ((names[0], name) for name in names[1:])
