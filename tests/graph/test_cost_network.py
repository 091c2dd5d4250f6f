"""Cost networks: the minimum that is found is that of trying everything."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from onefold.errors import OnefoldValueError
from onefold.graph.layouts.cost_network import CostNetwork
from onefold.graph.layouts.elimination import Solver, solve
from onefold.graph.layouts.memory_budget import solve_within

CLOSE = 1e-9


def network_of(seed, nodes, most=4, density=0.4):
    """A network with random costs, among them equal ones, and random families of states."""
    random = np.random.default_rng(seed)
    made = CostNetwork()
    for _ in range(nodes):
        states = int(random.integers(1, most + 1))
        families = [random.integers(0, 2, states) for _ in range(2)]
        made.node(random.random(states).round(1), random.random(states).round(1), families)
    for a, b in product(range(nodes), repeat=2):
        if a != b and random.random() < density:
            made.edge(a, b, random.random((len(made.costs[a]), len(made.costs[b]))).round(1))
    return made


def choices(network):
    """Cost and memory of every choice of states."""
    every = product(*[range(len(costs)) for costs in network.costs])
    return [(network.total(states), network.used(states)) for states in every]


GRAPHS = given(st.integers(0, 2**32), st.integers(1, 7))


@settings(max_examples=200)
@GRAPHS
def test_the_minimum_is_that_of_trying_everything(seed, nodes):
    network = network_of(seed, nodes)
    least = min(cost for cost, _ in choices(network))
    found = solve(network)
    assert found.cost == pytest.approx(least, abs=CLOSE)
    assert found.cost == network.total(found.states) == found.lower_bound
    assert found.gap == 0.0


@settings(max_examples=200)
@GRAPHS
def test_within_a_budget(seed, nodes):
    network = network_of(seed, nodes)
    every = choices(network)
    sizes = [used for _, used in every]
    budget = np.random.default_rng(seed).uniform(min(sizes), max(sizes))
    least = min(cost for cost, used in every if used <= budget + CLOSE)
    found = solve_within(network, budget + CLOSE)
    assert found.memory == network.used(found.states) <= budget + CLOSE
    assert found.lower_bound - CLOSE <= least <= found.cost + CLOSE
    assert found.cost - least <= found.gap * found.cost + CLOSE


@settings(max_examples=200)
@GRAPHS
def test_small_tables_give_a_bound_and_a_choice(seed, nodes):
    network = network_of(seed, nodes, density=0.7)
    least = min(cost for cost, _ in choices(network))
    found = Solver(network, table_size=16).solve(start=np.zeros(nodes, np.intp))
    assert found.lower_bound - CLOSE <= least <= found.cost + CLOSE
    assert found.cost == network.total(found.states) <= network.total([0] * nodes) + CLOSE


def layers(count, states=6):
    """Equal layers, one behind the other; in each is a pair that both ends know."""
    random = np.random.default_rng(0)
    costs = random.random(states)
    tables = [random.random((states, states)) for _ in range(5)]
    made = CostNetwork()
    last = made.node(costs)
    for _ in range(count):
        a, b, end = (made.node(costs) for _ in range(3))
        pairs = (last, a), (a, b), (b, end), (last, b), (a, end)
        for (one, other), table in zip(pairs, tables, strict=True):
            made.edge(one, other, table)
        last = end
    return made, costs, tables


def test_layers_one_behind_the_other():
    made, costs, tables = layers(200)
    found = solve(made)
    # By dynamic programming: through a layer, and from layer to layer.
    first, second, third, skip, far = tables
    through = first[:, :, None, None] + second[None, :, :, None] + third[None, None]
    through = through + skip[:, None, :, None] + far[None, :, None, :]
    through = (through + costs[:, None, None] + costs[:, None] + costs).min((1, 2))
    best = costs
    for _ in range(200):
        best = (best[:, None] + through).min(0)
    assert found.cost == found.lower_bound == pytest.approx(best.min())


def test_what_is_equal_is_computed_once():
    _, costs, tables = layers(1)

    def tables_of(count):
        made = CostNetwork()
        for _ in range(count):
            nodes = [made.node(costs) for _ in range(4)]
            for (a, b), table in zip(product(nodes[:2], nodes[2:]), tables, strict=False):
                made.edge(a, b, table)
        solver = Solver(made)
        return solver.solve().cost / count, len(solver.tables.arrays)

    (one, few), (hundred, many) = tables_of(1), tables_of(100)
    assert hundred == pytest.approx(one) and many == few


def test_a_budget_that_nothing_meets():
    network = CostNetwork()
    network.node(np.array([1.0, 2.0]), np.array([5000.0, 4000.0]))
    with pytest.raises(
        OnefoldValueError,
        match=r"the budget is 3,000 bytes, but every choice of layouts needs at least 4,000 bytes",
    ):
        solve_within(network, 3000, unit=" bytes")
    assert solve_within(network, 4000).cost == 2.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda n: n.node(np.array([])), r"costs must be finite numbers .* the shape \(0,\)"),
        (lambda n: n.node(np.array([np.inf])), "that is not finite"),
        (lambda n: n.node(np.zeros(2), np.zeros(3)), "2 states got memory for 3"),
        (lambda n: n.edge(0, 1, np.zeros((2, 3))), r"need the shape \(2, 2\), but have \(2, 3\)"),
        (lambda n: n.edge(0, 0, np.zeros((2, 2))), "both ends are node 0"),
        (lambda n: n.edge(0, 7, np.zeros((2, 2))), "there is no node 7"),
    ],
)
def test_what_is_no_network(make, message):
    network = CostNetwork()
    network.node(np.zeros(2))
    network.node(np.zeros(2))
    with pytest.raises(OnefoldValueError, match=message):
        make(network)
    assert len(network.costs) == 2 and network.edges == []


def test_a_network_without_nodes():
    found = solve(CostNetwork())
    assert found.cost == found.lower_bound == 0.0 and len(found.states) == 0
