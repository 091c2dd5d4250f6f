"""Layout tables: costs and bytes by state, made once for all layers that are alike.

A column is a tuple with the layout of one value in each state of a node. Equal columns are one
object (`LayoutTables.column`), so that tables can be found by the identities of their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import TypeAlias

import numpy as np

from ...engine.meta import Meta
from ...engine.sbp import broadcast, split
from .cost_network import Costs, States
from .layout_costs import LayoutCosts, local_elements

Column: TypeAlias = tuple[Meta | None, ...]


class LayoutTables:
    """The tables of one cost graph."""

    def __init__(self, costs: LayoutCosts) -> None:
        self.costs = costs
        self._columns: dict[Column, Column] = {}
        self._tables: dict[object, Costs] = {}
        self._families: dict[object, tuple[States, ...]] = {}
        self._storages: dict[Meta, Column] = {}
        self._times: dict[tuple[Meta, Meta], float] = {}

    def column(self, metas: Iterable[Meta | None]) -> Column:
        """The column of these layouts."""
        found = tuple(metas)
        return self._columns.setdefault(found, found)

    def table(self, key: object, make: Callable[[], Sequence[float] | Costs]) -> Costs:
        """The table that `make` returns, cached by key."""
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = np.array(make(), float)
        return found

    def storages(self, meta: Meta, only: int | None = None) -> Column:
        """The present layout first, then all broadcasts and splits into equal parts.

        With `only` they differ along that axis alone.
        """
        if meta not in self._storages:
            found = {meta: None}
            if meta.placement is not None:
                kinds = [broadcast, *(split(dim) for dim in range(meta.ndim))]
                choices = [
                    kinds if parts > 1 and only in (None, axis) else [sbp]
                    for axis, (sbp, parts) in enumerate(
                        zip(meta.nd_sbp, meta.placement.shape, strict=True)
                    )
                ]
                layouts = (meta.like(nd_sbp=nd_sbp) for nd_sbp in product(*choices))
                found |= {layout: None for layout in layouts if _is_even(layout)}
            self._storages[meta] = self.column(found)
        return self._storages[meta]

    def boxing(self, made: Column, wanted: Column, times: int = 1) -> Costs:
        """Seconds by the states of the producer of a value (rows) and of its reader."""

        def seconds() -> Costs:
            starts, rows = _distinct(made)
            ends, places = _distinct(wanted)
            found = np.array([[self._time(a, b) for b in ends] for a in starts])
            table: Costs = times * found[rows][:, places]
            return table

        return self.table(("boxing", id(made), id(wanted), times), seconds)

    def from_copies(self, first: Column, second: Column, wanted: Column, times: int) -> Costs:
        """The same from two copies, of which each reader takes the nearer one."""
        return self.table(
            ("from copies", id(first), id(second), id(wanted), times),
            lambda: np.minimum(
                self.boxing(first, wanted, times), self.boxing(second, wanted, times)
            ),
        )

    def copying(self, first: Column, second: Column, times: int) -> Costs:
        """Seconds of making second copies from the first."""
        return self.table(
            ("copying", id(first), id(second), times),
            lambda: [times * self._time(a, b) for a, b in zip(first, second, strict=True)],
        )

    def held(self, column: Column) -> Costs:
        """Bytes of a value on a rank."""
        return self.table(("held", id(column)), lambda: [local_bytes(meta) for meta in column])

    def held_twice(self, first: Column, second: Column, times: int) -> Costs:
        """Bytes of second copies that are not the first."""
        pairs = zip(first, second, strict=True)
        return self.table(
            ("twice", id(first), id(second), times),
            lambda: [0 if a is b else times * local_bytes(b) for a, b in pairs],
        )

    def families(self, *columns: Column) -> tuple[States, ...]:
        """For each axis of a mesh, numbers of states: equal where all but that axis is equal."""
        key = tuple(map(id, columns))
        if key not in self._families:
            states = list(zip(*columns, strict=True))
            axes = max((len(meta.nd_sbp) for meta in states[0] if meta is not None), default=0)
            self._families[key] = tuple([_numbered(states, axis) for axis in range(axes)])
        return self._families[key]

    def _time(self, src: Meta | None, dst: Meta | None) -> float:
        if src is dst:
            return 0.0
        assert src is not None and dst is not None
        found = self._times.get((src, dst))
        if found is None:
            found = self._times[src, dst] = self.costs.boxing(src, dst)
        return found


def local_bytes(meta: Meta | None) -> int:
    """Bytes of the largest shard; 0 if there is no value."""
    return 0 if meta is None else local_elements(meta) * meta.dtype.itemsize


def _is_even(meta: Meta) -> bool:
    """Whether all shards are equal and not empty."""
    shape = list(meta.shape)
    for sbp, parts in zip(meta.nd_sbp, meta.global_placement.shape, strict=True):
        if sbp.is_split:
            shape[sbp.dim], rest = divmod(shape[sbp.dim], parts)
            if rest or not shape[sbp.dim]:
                return False
    return True


def _numbered(states: Sequence[Sequence[Meta | None]], axis: int) -> States:
    numbers: dict[object, int] = {}
    rest = [
        tuple([m and (*m.nd_sbp[:axis], *m.nd_sbp[axis + 1 :]) for m in metas]) for metas in states
    ]
    return np.array([numbers.setdefault(key, len(numbers)) for key in rest], np.intp)


def _distinct(column: Column) -> tuple[list[Meta | None], list[int]]:
    """The layouts of a column, and which of them each state has."""
    places = {meta: place for place, meta in enumerate(dict.fromkeys(column))}
    return list(places), [places[meta] for meta in column]
