"""Domination: leaves out states that cannot be part of a minimum.

A state is left out if another one of its node costs less whatever the neighbors' states are.
Source: Goldstein, "Efficient rotamer elimination" (1994).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from .cost_tables import CostTables

_SIZE = 1 << 21  # entries of the largest comparison of a node's states


class Reduced:
    """A network's tables, of the states that are left. Nodes with one state have no edges.

    From the start those are left that `rows` has for a node, or all for None.
    """

    def __init__(
        self,
        tables: CostTables,
        costs: Sequence[int],
        edges: Mapping[tuple[int, int], int],
        rows: Sequence[tuple[int, ...] | None] | None = None,
    ) -> None:
        self.tables = tables
        self.costs = list(costs)
        self.kept = [tuple(range(tables.arrays[number].size)) for number in costs]
        for node, some in enumerate(rows or ()):
            if some is not None and len(some) < len(self.kept[node]):
                self.kept[node] = some
                self.costs[node] = tables.selected(costs[node], some)
        # Of each node, by neighbor: the table with the node's own states as rows.
        self.around: list[dict[int, int]] = [{} for _ in costs]
        for (a, b), number in edges.items():
            own = number if rows is None else tables.block(number, self.kept[a], self.kept[b])
            self.around[a][b] = own
            self.around[b][a] = tables.transposed(own)
        self._known: dict[object, tuple[int, ...] | None] = {}

    def run(self) -> None:
        """Leave out states until no state is dominated."""
        waiting = deque(range(len(self.costs)))
        queued = set(waiting)
        while waiting:
            node = waiting.popleft()
            queued.discard(node)
            if len(self.kept[node]) == 1:
                self._fold(node)
                continue
            rows = self._left(node)
            if rows is None:
                continue
            self._keep(node, rows)
            for other in (node, *self.around[node]):
                if other not in queued:
                    queued.add(other)
                    waiting.append(other)

    def _left(self, node: int) -> tuple[int, ...] | None:
        """The rows that are not dominated; None for all of them."""
        edges = self.around[node].values()
        key = self.costs[node], *sorted(edges)
        if key in self._known:
            return self._known[key]
        arrays = self.tables.arrays
        costs = arrays[self.costs[node]]
        more = costs[:, None] - costs[None, :]  # at least so much one state costs more
        for number in edges:
            if len(costs) * arrays[number].size > _SIZE:
                self._known[key] = None
                return None
            more = more + arrays[self.tables.differences(number)]
        # Of equal states the first stays.
        later = np.tri(len(costs), k=-1, dtype=bool)
        dominated = ((more > 0) | ((more == 0) & later)).any(1)
        rows = None if not dominated.any() else tuple(np.flatnonzero(~dominated).tolist())
        self._known[key] = rows
        return rows

    def _keep(self, node: int, rows: tuple[int, ...]) -> None:
        tables = self.tables
        self.kept[node] = tuple([self.kept[node][row] for row in rows])
        self.costs[node] = tables.selected(self.costs[node], rows)
        for other, number in self.around[node].items():
            own = self.around[node][other] = tables.selected(number, rows)
            self.around[other][node] = tables.transposed(own)

    def _fold(self, node: int) -> None:
        """Add the costs of a node's edges to its neighbors."""
        for other, number in self.around[node].items():
            self.costs[other] = self.tables.added(self.costs[other], self.tables.row(number))
            del self.around[other][node]
        self.around[node] = {}
