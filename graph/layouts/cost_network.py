"""Cost network: nodes with a few states each, with costs of states and of pairs of states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import OnefoldValueError

Costs = NDArray[np.float64]
States = NDArray[np.intp]  # of each node, its state


class CostNetwork:
    """The objective: a sum of costs of the nodes' states, and of pairs of states.

    Equal tables may be one array; they are then computed with once.
    """

    def __init__(self) -> None:
        self.costs: list[Costs] = []  # of each node, by state
        self.memory: list[Costs] = []  # likewise, of what a budget limits
        self.edges: list[tuple[int, int, Costs]] = []  # two nodes, and the costs by their states
        self.families: list[Sequence[States]] = []  # of each node, see `node`

    def node(
        self, costs: Costs, memory: Costs | None = None, families: Sequence[States] = ()
    ) -> int:
        """Add a node; returns its number.

        Each of `families` gives a number for each state. Where the minimum is too hard to find, it
        is found among the states with the numbers of those chosen so far, by the first families
        of all nodes, by the second, and so on. Raises OnefoldValueError for tables that cannot be.
        """
        _check(costs, 1, "costs")
        if memory is not None:
            _check(memory, 1, "memory")
            if memory.shape != costs.shape:
                raise OnefoldValueError(
                    f"a node with {len(costs)} states got memory for {len(memory)}; give one "
                    "number for each state"
                )
        self.costs.append(costs)
        self.families.append(families)
        self.memory.append(np.zeros(len(costs)) if memory is None else memory)
        return len(self.costs) - 1

    def edge(self, a: int, b: int, costs: Costs) -> None:
        """Add the costs of the states of `a` (rows) and `b` (columns)."""
        _check(costs, 2, "costs")
        for node in (a, b):
            if not 0 <= node < len(self.costs):
                raise OnefoldValueError(
                    f"there is no node {node}: the network has {len(self.costs)} nodes; add nodes "
                    "before edges"
                )
        if a == b:
            raise OnefoldValueError(f"an edge joins two nodes, but both ends are node {a}")
        wanted = len(self.costs[a]), len(self.costs[b])
        if costs.shape != wanted:
            raise OnefoldValueError(
                f"the costs of an edge between nodes with {wanted[0]} and {wanted[1]} states need "
                f"the shape {wanted}, but have {costs.shape}"
            )
        self.edges.append((a, b, costs))

    def total(self, states: Sequence[int] | States) -> float:
        """The cost of a choice of states."""
        total = sum(float(costs[state]) for costs, state in zip(self.costs, states, strict=True))
        return total + sum(float(costs[states[a], states[b]]) for a, b, costs in self.edges)

    def used(self, states: Sequence[int] | States) -> float:
        """The memory of a choice of states."""
        pairs = zip(self.memory, states, strict=True)
        return sum(float(memory[state]) for memory, state in pairs)

    def neighbors(self) -> list[list[tuple[int, Costs]]]:
        """The neighbors of each node, with the costs of the edges; its own states are the rows."""
        found: list[list[tuple[int, Costs]]] = [[] for _ in self.costs]
        for a, b, costs in self.edges:
            found[a].append((b, costs))
            found[b].append((a, costs.T))
        return found


@dataclass(frozen=True)
class Solution:
    """A choice of states, its cost, and a lower bound of the cost of any choice."""

    states: States
    cost: float
    lower_bound: float
    memory: float = 0.0

    @property
    def gap(self) -> float:
        """The relative gap between the cost and the lower bound; 0 for an optimal choice."""
        return max(0.0, self.cost - self.lower_bound) / max(abs(self.cost), 1e-300)


def _check(table: Costs, ndim: int, what: str) -> None:
    if table.ndim != ndim or 0 in table.shape or not np.isfinite(table).all():
        raise OnefoldValueError(
            f"{what} must be finite numbers with {ndim} dim{'s' * (ndim > 1)} and at least one "
            f"state, but got an array with the shape {table.shape}"
            + (" that is not finite" if table.size and not np.isfinite(table).all() else "")
        )
