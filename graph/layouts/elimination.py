"""Elimination: the exact minimum of a cost network, one node after the other.

Eliminating a node replaces the tables that it stands in by one table over its neighbours: the sum
of them, with the node's best state for each choice of theirs. Where that sum would be too large,
the tables are divided into groups whose minima are taken apart, which gives a lower bound and a
good choice. Tables of equal layers are equal, so that they are computed once. Sources: Bertele and
Brioschi, "Nonserial Dynamic Programming" (1972); Dechter, "Bucket elimination" (1999); Dechter and
Rish, "Mini-buckets: a general scheme for bounded inference" (2003).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf, log, prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .cost_network import CostNetwork, Solution, States
from .cost_tables import CostTables
from .domination import Reduced

TABLE_SIZE = 1 << 26  # entries of the largest sum of tables
_GROUP_SIZE = 1 << 22  # the same, where that is not enough for the exact minimum
_PART = 1 << 20  # entries of a part of a sum
_SWEEPS = 16
_LEAST = 1e-6  # relative: a smaller gain is not worth another round
_DONE = (-inf, -inf)

Scope: TypeAlias = tuple[int, ...]  # the nodes over whose states a table is
Factor: TypeAlias = tuple[Scope, int]


def solve(network: CostNetwork, table_size: int = TABLE_SIZE) -> Solution:
    """The choice of states with the least cost.

    Its `lower_bound` equals its cost where no table needed more than `table_size` entries.
    """
    return Solver(network, table_size).solve()


class Solver:
    """Solves one network, also several times with other prices of memory."""

    def __init__(self, network: CostNetwork, table_size: int = TABLE_SIZE) -> None:
        self.network = network
        self.table_size = table_size
        self.tables = tables = CostTables()
        self._edges: dict[tuple[int, int], int] = {}
        for a, b, costs in network.edges:
            number = tables.number(costs, transposed=a > b)
            pair = min(a, b), max(a, b)
            known = self._edges.get(pair)
            self._edges[pair] = number if known is None else tables.added(known, number)

    def solve(self, price: float = 0.0, start: States | None = None) -> Solution:
        """The least sum of costs and of memory at a price.

        Where it is not known to be the least, it is no more than that of `start`.
        """
        costs = self._priced(price)
        bound, states, exact = self._eliminate(Reduced(self.tables, costs, self._edges))
        if not exact:
            starts = [states] if start is None else [states, start]
            found = [self._descend(each, price, costs) for each in starts]
            states = min(found, key=lambda each: self._total(each, price))
        used = self.network.used(states)
        cost = self._total(states, price)
        return Solution(states, cost, cost if exact else min(bound, cost), used)

    def _priced(self, price: float) -> list[int]:
        network, tables = self.network, self.tables
        costs = [tables.number(each) for each in network.costs]
        if not price:
            return costs
        memory = [tables.number(each) for each in network.memory]
        pairs = zip(costs, memory, strict=True)
        return [tables.priced(cost, used, price) for cost, used in pairs]

    def _total(self, states: States, price: float) -> float:
        return self.network.total(states) + price * self.network.used(states)

    def _eliminate(self, reduced: Reduced, rough: bool = False) -> tuple[float, States, bool]:
        """A lower bound, the states, and whether they are the best."""
        reduced.run()
        elimination = _Elimination(reduced, self.table_size, rough)
        bound = elimination.run()
        return bound, elimination.states(), elimination.exact

    def _descend(self, states: States, price: float, costs: Sequence[int]) -> States:
        """Better states, each the best of a family, as long as there are some."""
        states = improved(self.network, states, price)
        least = self._total(states, price)
        families = self.network.families
        count = max(map(len, families), default=0)
        failed = turn = 0
        while failed < count:
            reduced = Reduced(self.tables, costs, self._edges)
            for node, numbers in enumerate(families):
                if turn % count < len(numbers):
                    own = numbers[turn % count]
                    reduced.only(node, tuple(np.flatnonzero(own == own[states[node]]).tolist()))
            found = self._eliminate(reduced, rough=True)[1]
            cost = self._total(found, price)
            turn += 1
            if cost < least * (1 - _LEAST):
                states, least, failed = found, cost, 0
            else:
                failed += 1
        return states


@dataclass(frozen=True, slots=True)
class _Eliminated:
    """A node, and its best state by the states of others, or the tables that decide it."""

    node: int
    scope: Scope
    best: NDArray[np.uint16] | None
    factors: Sequence[Factor] = ()


class _Elimination:
    """One run over a reduced network; in a `rough` order where nodes have few states."""

    def __init__(self, reduced: Reduced, table_size: int, rough: bool = False) -> None:
        self.tables: CostTables = reduced.tables
        self.reduced = reduced
        self.table_size = self.group_size = table_size
        self.sizes = [len(kept) for kept in reduced.kept]
        self.exact = True
        self.rough = rough
        self._factors: list[Factor] = []
        self._of: list[set[int]] = [set() for _ in self.sizes]
        self._around = [set(around) for around in reduced.around]
        self._logs = [log(size) for size in self.sizes]
        self._done: list[_Eliminated] = []
        self._known: dict[object, tuple[int, NDArray[np.uint16]]] = {}
        for node, number in enumerate(reduced.costs):
            self._add((node,), number)
        for node, around in enumerate(reduced.around):
            for other, number in around.items():
                if node < other:
                    self._add((node, other), number)

    def _add(self, scope: Scope, number: int) -> None:
        for node in scope:
            self._of[node].add(len(self._factors))
        self._factors.append((scope, number))

    def run(self) -> float:
        """Eliminate all nodes; returns the lower bound."""
        order = self._order()
        sizes = [prod([self.sizes[n] for n in (node, *around)]) for node, around in order]
        if max(sizes, default=1) > self.table_size:
            self.group_size = min(self.table_size, _GROUP_SIZE)
        return sum([self._eliminate(node, around) for node, around in order])

    def _order(self) -> list[tuple[int, list[int]]]:
        """The order of elimination, with the neighbours that each node then has."""
        order: list[tuple[int, list[int]]] = []
        current = [self._rank(node) for node in range(len(self.sizes))]
        heap = [(rank, node) for node, rank in enumerate(current)]
        heapify(heap)
        while len(order) < len(current):
            rank, node = heappop(heap)
            if rank != current[node]:
                continue
            current[node] = _DONE
            around = self._around[node]
            order.append((node, sorted(around)))
            touched = set(around)
            for other in around:
                self._around[other] |= around
                self._around[other] -= {node, other}
                if not self.rough:
                    touched |= self._around[other]
            for other in touched:
                rank = self._rank(other)
                if rank != current[other]:
                    current[other] = rank
                    heappush(heap, (rank, other))
        return order

    def _rank(self, node: int) -> tuple[float, float]:
        """What nodes are ordered by.

        Those come first that join the fewest pairs of neighbours which no table joins yet; pairs
        with many states count more, nodes with many states less. Then those with a small table.
        Source: Kjaerulff, "Triangulation of graphs" (1990).
        """
        logs, around = self._logs, self._around[node]
        new, rest = 0.0, set(around)
        for other in () if self.rough else around:
            rest.discard(other)
            apart = rest - self._around[other]
            if apart:
                new += logs[other] * sum([logs[each] for each in apart])
        size = logs[node] + sum([logs[other] for other in around])
        return round(new / max(logs[node], _LEAST), 9), round(size, 9)

    def _eliminate(self, node: int, around: list[int]) -> float:
        factors = [self._factors[each] for each in sorted(self._of[node])]
        for each in list(self._of[node]):
            for other in self._factors[each][0]:
                self._of[other].discard(each)
        bound = 0.0
        groups = self._groups(node, factors)
        for group in groups:
            scope = tuple(sorted({other for nodes, _ in group for other in nodes} - {node}))
            number, best = self._minimum(node, scope, group)
            if scope:
                self._add(scope, number)
            else:
                bound += self.tables.arrays[number].item()
            if len(groups) == 1:
                self._done.append(_Eliminated(node, scope, best))
        if len(groups) > 1:
            self.exact = False
            self._done.append(_Eliminated(node, tuple(around), None, factors))
        return bound

    def _groups(self, node: int, factors: list[Factor]) -> list[list[Factor]]:
        """The factors in as few groups as have tables that are small enough."""
        found: list[tuple[set[int], list[Factor]]] = []
        for factor in sorted(factors, key=lambda each: -len(each[0])):
            for scope, group in found:
                together = scope | {*factor[0]}
                if prod([self.sizes[other] for other in together]) <= self.group_size:
                    scope |= together
                    group.append(factor)
                    break
            else:
                found.append(({*factor[0]}, [factor]))
        return [group for _, group in found]

    def _minimum(
        self, node: int, scope: Scope, factors: Sequence[Factor]
    ) -> tuple[int, NDArray[np.uint16]]:
        """The table of the least sum over a node's states, and which states these are."""
        order = {other: place for place, other in enumerate((*scope, node))}
        relative = [(tuple([order[n] for n in nodes]), number) for nodes, number in factors]
        key = tuple(sorted(relative, key=lambda each: (each[1], each[0])))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._joined([self.sizes[n] for n in order], key)
        return found

    def _joined(
        self, sizes: Sequence[int], factors: Sequence[tuple[Scope, int]]
    ) -> tuple[int, NDArray[np.uint16]]:
        """The minimum over the last place of a sum of tables, part by part where it is large."""
        tables = []
        for places, number in factors:
            array = self.tables.arrays[number].transpose(np.argsort(places))
            tables.append(array.reshape([s if i in places else 1 for i, s in enumerate(sizes)]))
        least = np.empty(sizes[:-1])
        best = np.empty(sizes[:-1], np.uint16)
        rows = max(1, _PART * sizes[0] // prod(sizes)) if len(sizes) > 1 else 1
        for first in range(0, sizes[0] if len(sizes) > 1 else 1, rows):
            part = slice(first, first + rows) if len(sizes) > 1 else ...
            total = np.zeros([*least[part].shape, sizes[-1]])
            for table in tables:
                total += table[part] if len(sizes) > 1 and table.shape[0] > 1 else table
            chosen = total.argmin(-1)
            best[part] = chosen
            least[part] = np.take_along_axis(total, chosen[..., None], -1)[..., 0]
        return self.tables.add(least), best

    def states(self) -> States:
        """The best states, from the node that was eliminated last to the first."""
        chosen = np.zeros(len(self.sizes), np.intp)
        for each in reversed(self._done):
            if each.best is not None:
                chosen[each.node] = each.best[tuple(chosen[list(each.scope)])]
                continue
            total = np.zeros(self.sizes[each.node])
            for nodes, number in each.factors:
                index = tuple([slice(None) if n == each.node else chosen[n] for n in nodes])
                total = total + self.tables.arrays[number][index]
            chosen[each.node] = int(total.argmin())
        kept = self.reduced.kept
        return np.array([kept[node][state] for node, state in enumerate(chosen)], np.intp)


def improved(
    network: CostNetwork, states: States, price: float = 0.0, budget: float | None = None
) -> States:
    """The states after changes of one node at a time, as long as they help.

    The memory stays within `budget`, if `states` is.
    """
    states = states.copy()
    around = network.neighbours()
    used = network.used(states)
    for _ in range(_SWEEPS):
        changed = False
        for node, costs in enumerate(network.costs):
            if len(costs) == 1:
                continue
            memory = network.memory[node]
            total = costs + price * memory if price else costs
            for other, table in around[node]:
                total = total + table[:, states[other]]
            present = states[node]
            if budget is not None:
                fits = used - memory[present] + memory <= budget
                total = np.where(fits, total, np.inf)
            best = int(total.argmin())
            if total[best] < total[present]:
                used += float(memory[best] - memory[present])
                states[node] = best
                changed = True
        if not changed:
            break
    return states
