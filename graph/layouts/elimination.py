"""Elimination: the exact minimum of a cost network, one node after the other.

Eliminating a node replaces the tables that it stands in by one table over its neighbors: the sum
of them, with the node's best state for each choice of theirs. Where that sum would be too large,
the tables are divided into groups whose minima are taken apart, which gives a lower bound and a
good choice. Tables of equal layers are equal, so that they are computed once. Sources: Bertele and
Brioschi, "Nonserial Dynamic Programming" (1972); Dechter, "Bucket elimination" (1999); Dechter and
Rish, "Mini-buckets: a general scheme for bounded inference" (2003).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf, log, prod
from typing import TypeAlias

import numpy as np

from .cost_network import CostNetwork, Costs, Solution, States
from .cost_tables import CostTables
from .domination import Reduced

TABLE_SIZE = 1 << 26  # entries of the largest sum of tables
_GROUP_SIZE = 1 << 22  # the same, where that is not enough for the exact minimum
_LARGER = 4  # times as many, to close a small gap; a wide one takes the largest sums
_WIDE = 0.05  # relative: what a gap between cost and bound is wide from
_SMALL = 1e-3  # the same, of one that is not worth closing
_PART = 1 << 16  # entries of a part of a sum
_LOOPED = 16  # entries for each state of a node from which its states are taken one by one
_SWEEPS = 16
_LEAST = 1e-6  # relative: a smaller gain is not worth another round
_SAME = 1e-9  # relative: sums that differ by rounding alone
_TINY = 1e-300
_DONE = (-inf, -inf)

Scope: TypeAlias = tuple[int, ...]  # the nodes over whose states a table is
Factor: TypeAlias = tuple[Scope, int]


def solve(network: CostNetwork, table_size: int = TABLE_SIZE) -> Solution:
    """The choice of states with the least cost.

    Its `lower_bound` equals its cost where no table needed more than `table_size` entries.
    """
    return Solver(network, table_size).solve(close=True)


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

    def solve(
        self, price: float = 0.0, start: States | None = None, close: bool = False
    ) -> Solution:
        """The least sum of costs and of memory at a price.

        Where it is not known to be the least, it is no more than that of `start`. With `close` a
        gap to the lower bound is made smaller where larger tables do that.
        """
        costs = self._priced(price)
        size = _GROUP_SIZE
        reduced = Reduced(self.tables, costs, self._edges)
        reduced.run()
        elimination = _Elimination(reduced, self.table_size)
        bound, states = elimination.run(size), elimination.states()
        if not elimination.exact:
            states = improved(self.network, states, price)
            gap = 1 - bound / max(self._total(states, price), _TINY)
            if close and gap > _SMALL and size < self.table_size:
                size = self.table_size if gap > _WIDE else _LARGER * size
                bound = max(bound, elimination.run(size))
                others = elimination.states()
                states = min(others, states, key=lambda each: self._total(each, price))
        exact = elimination.exact
        if not exact and bound < self._total(states, price) * (1 - _SAME):
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

    def _descend(self, states: States, price: float, costs: Sequence[int]) -> States:
        """Improve the states family by family, as long as the cost decreases."""
        states = improved(self.network, states, price)
        least = self._total(states, price)
        families = self.network.families
        count = max(map(len, families), default=0)
        known: dict[tuple[int, int], tuple[int, ...]] = {}
        failed = turn = 0
        while failed < count:
            rows: list[tuple[int, ...] | None] = [None] * len(families)
            for node, numbers in enumerate(families):
                if turn % count < len(numbers):
                    own = numbers[turn % count]
                    key = id(own), int(own[states[node]])
                    if key not in known:
                        known[key] = tuple(np.flatnonzero(own == key[1]).tolist())
                    rows[node] = known[key]
            reduced = Reduced(self.tables, costs, self._edges, rows)
            reduced.run()
            elimination = _Elimination(reduced, self.table_size, rough=True)
            elimination.run(_GROUP_SIZE)
            found = elimination.states()
            cost = self._total(found, price)
            turn += 1
            if cost < least * (1 - _LEAST):
                states, least, failed = found, cost, 0
            else:
                failed += 1
        return states


class _Elimination:
    """Runs over a reduced network; in a `rough` order where nodes have few states."""

    def __init__(self, reduced: Reduced, table_size: int, rough: bool = False) -> None:
        self.tables: CostTables = reduced.tables
        self.reduced = reduced
        self.table_size = self.group_size = table_size
        self.sizes = [len(kept) for kept in reduced.kept]
        self.exact = True
        self.rough = rough
        self._around = [set(around) for around in reduced.around]
        self._logs = [log(size) for size in self.sizes]
        self._known: dict[object, int] = {}
        self._order = self._ordered()
        self._turns = {node: turn for turn, (node, _) in enumerate(self._order)}
        self._buckets: list[list[Factor]] = []  # of each node
        self._done: list[tuple[int, Sequence[Factor]]] = []  # nodes, and the tables they stood in

    def _add(self, scope: Scope, number: int) -> None:
        """Add a table to those of the node of its scope that is eliminated first."""
        self._buckets[min(scope, key=self._turns.__getitem__)].append((scope, number))

    def run(self, group_size: int) -> float:
        """Eliminate all nodes; returns the lower bound.

        If one sum needs more entries than the largest table may have, all take `group_size`.
        """
        self._buckets, self._done, self.exact = [[] for _ in self.sizes], [], True
        for node, number in enumerate(self.reduced.costs):
            if node in self._turns:
                self._add((node,), number)
        for node, edges in enumerate(self.reduced.around):
            for other, number in edges.items():
                if node < other:
                    self._add((node, other), number)
        sizes = [prod([self.sizes[n] for n in (node, *around)]) for node, around in self._order]
        if max(sizes, default=1) > self.table_size:
            self.group_size = min(self.table_size, group_size)
        # A node with one state has no edges.
        alone = [n for n, size in enumerate(self.sizes) if size == 1]
        bound = sum([self.tables.arrays[self.reduced.costs[n]].item() for n in alone])
        return sum([self._eliminate(node, around) for node, around in self._order], bound)

    def _ordered(self) -> list[tuple[int, list[int]]]:
        """The order of elimination, with the neighbors that each node then has."""
        order: list[tuple[int, list[int]]] = []
        current = {node: self._rank(node) for node, size in enumerate(self.sizes) if size > 1}
        heap = [(rank, node) for node, rank in current.items()]
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
                joined = self._around[other]
                joined.discard(node)
                fresh = around - joined
                fresh.discard(other)
                joined |= fresh
                if not self.rough:  # who knows both ends of a new pair joins one pair less
                    for each in fresh:
                        touched |= joined & self._around[each]
            for other in touched:
                rank = self._rank(other)
                if rank != current[other]:
                    current[other] = rank
                    heappush(heap, (rank, other))
        return order

    def _rank(self, node: int) -> tuple[float, float]:
        """The key by which nodes are ordered.

        Those come first that join the fewest pairs of neighbors which no table joins yet; pairs
        with many states count more, nodes with many states less. Then those with a small table.
        Source: Kjaerulff, "Triangulation of graphs" (1990).
        """
        logs, around = self._logs, self._around[node]
        size = round(logs[node] + sum([logs[other] for other in around]), 9)
        if self.rough:
            return 0.0, size
        new, rest = 0.0, set(around)
        for other in around:
            rest.discard(other)
            apart = rest - self._around[other]
            if apart:
                new += logs[other] * sum([logs[each] for each in apart])
        return round(new / logs[node], 9), size

    def _eliminate(self, node: int, around: list[int]) -> float:
        factors = self._buckets[node]
        bound = 0.0
        if prod([self.sizes[n] for n in (node, *around)]) <= self.group_size:
            groups = [factors]
        else:
            groups = self._groups(node, factors)
        for group in groups:
            scope = tuple(sorted({other for nodes, _ in group for other in nodes} - {node}))
            group.sort(key=lambda each: (each[1], [(n == node, n) for n in each[0]]))
            number = self._minimum(node, scope, group)
            if scope:
                self._add(scope, number)
            else:
                bound += self.tables.arrays[number].item()
        if len(groups) > 1:
            self.exact = False
        self._done.append((node, factors if len(groups) > 1 else groups[0]))
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

    def _minimum(self, node: int, scope: Scope, factors: Sequence[Factor]) -> int:
        """The table of the least sum over a node's states."""
        order = {other: place for place, other in enumerate((*scope, node))}
        key = tuple([(tuple([order[n] for n in nodes]), number) for nodes, number in factors])
        found = self._known.get(key)
        if found is None:
            least = self._joined([self.sizes[n] for n in order], key)
            found = self._known[key] = self.tables.add(least)
        return found

    def _joined(self, sizes: Sequence[int], factors: Sequence[tuple[Scope, int]]) -> Costs:
        """The minimum over the last place of a sum of tables, part by part where it is large."""
        count, *sizes = sizes[-1], *sizes[:-1]
        tables = []
        for places, number in factors:
            array = self.tables.arrays[number].transpose(np.argsort(places))
            last = array.ndim - 1
            array = np.ascontiguousarray(array.transpose(last, *range(last)))
            tables.append(
                array.reshape([-1, *[s if i in places else 1 for i, s in enumerate(sizes)]])
            )
        size = prod(sizes)
        if size < _LOOPED * count:
            small: Costs = sum(tables[1:], tables[0]).min(0).reshape(sizes)
            return small
        least = np.full(sizes, inf)
        rows = max(1, _PART * sizes[0] // size)
        for first in range(0, sizes[0], rows):
            part = slice(first, first + rows)
            some = [table[:, part] if table.shape[1] > 1 else table for table in tables]
            here = least[part]
            whole = np.empty_like(here)
            for state in range(count):
                total: Costs = some[0][state]
                for table in some[1:-1]:
                    total = total + table[state]
                if len(some) > 1:
                    total = np.add(total, some[-1][state], out=whole)
                np.minimum(here, total, out=here)
        return least

    def states(self) -> States:
        """The best states, from the node that was eliminated last to the first."""
        chosen = [0] * len(self.sizes)
        known: dict[object, int] = {}
        for node, factors in reversed(self._done):
            key = tuple([
                (number, tuple([None if n == node else chosen[n] for n in nodes]))
                for nodes, number in factors
            ])  # fmt: skip
            best = known.get(key)
            if best is None:
                total = np.zeros(self.sizes[node])
                for number, index in key:
                    where = tuple([slice(None) if each is None else each for each in index])
                    total = total + self.tables.arrays[number][where]
                best = known[key] = int(total.argmin())
            chosen[node] = best
        kept = self.reduced.kept
        return np.array([kept[node][state] for node, state in enumerate(chosen)], np.intp)


def improved(
    network: CostNetwork, states: States, price: float = 0.0, budget: float | None = None
) -> States:
    """The states after changes of one node at a time, as long as they help.

    The memory stays within `budget`, if `states` is.
    """
    states = states.copy()
    around = network.neighbors()
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
