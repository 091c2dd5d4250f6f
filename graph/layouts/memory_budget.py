"""Memory budget: the least cost among the choices whose memory fits, by Lagrange multipliers.

A price of memory is added to the costs. Each solution at a price gives a lower bound for all
choices within the budget. The bound is greatest at a price where two solutions cost the same, one
that fits and one that does not; it is found by going from one such price to the next. Sources:
Everett, "Generalized Lagrange multiplier method" (1963); Handler and Zang, "A dual algorithm for
the constrained shortest path problem" (1980).
"""

from __future__ import annotations

import numpy as np

from ...errors import OnefoldValueError
from .cost_network import CostNetwork, Solution, States
from .elimination import TABLE_SIZE, Solver, improved

_ROUNDS = 40
_CLOSE = 1e-9  # relative: two costs that are the same


def solve_within(
    network: CostNetwork, budget: float, table_size: int = TABLE_SIZE, unit: str = ""
) -> Solution:
    """The choice of states with the least cost that was found among those within `budget`.

    Its `lower_bound` holds for all of them. Raises OnefoldValueError if no choice fits; `unit` is
    that of the memory, for its message.
    """
    least = sum(float(memory.min()) for memory in network.memory)
    if least > budget:
        raise OnefoldValueError(
            f"the budget is {budget:,.0f}{unit}, but every choice of layouts needs at least "
            f"{least:,.0f}{unit}, {least - budget:,.0f}{unit} more; allow more, or use more ranks, "
            "fewer micro-batches in flight or recomputation"
        )
    solver = Solver(network, table_size)
    over = solver.solve()
    if over.memory <= budget:
        return over
    best = smallest = _smallest(network)
    best = improved(network, best, budget=budget)
    bound = over.lower_bound
    high = network.total(smallest), network.used(smallest)  # fits
    low = over.cost, over.memory  # does not
    for _ in range(_ROUNDS):
        if low[1] <= high[1]:
            break
        price = max(0.0, (high[0] - low[0]) / (low[1] - high[1]))
        found = solver.solve(price, best)
        bound = max(bound, found.lower_bound - price * budget)
        cost = found.cost - price * found.memory
        if found.memory <= budget:
            best = _better(network, best, improved(network, found.states, budget=budget))
        line = high[0] + price * high[1]
        if found.cost >= line - _CLOSE * abs(line):
            break  # no solution at this price is below the line through both
        if found.memory <= budget:
            high = cost, found.memory
        else:
            low = cost, found.memory
    cost = network.total(best)
    return Solution(best, cost, min(bound, cost), network.used(best))


def _smallest(network: CostNetwork) -> States:
    """The states with the least memory, and among these the least cost."""
    pairs = zip(network.memory, network.costs, strict=True)
    return np.array([np.lexsort((costs, memory))[0] for memory, costs in pairs], np.intp)


def _better(network: CostNetwork, a: States, b: States) -> States:
    return a if network.total(a) <= network.total(b) else b
