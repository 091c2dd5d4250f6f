"""Memory planning: lifetimes, arenas against brute force, and plans against what programs hold."""

import itertools
import random
from dataclasses import replace
from statistics import mean

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from training_steps import (
    MODELS,
    ONE,
    PAIR,
    Block,
    Net,
    Train,
    compiled,
    inputs_for,
    lives,
    measured,
    two_layers,
)

import onefold as flow
from onefold import nn, sbp
from onefold.engine.meta import Meta
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from onefold.graph.ir import ProgramStep, Value
from onefold.graph.memory import arena
from onefold.graph.memory.liveness import Buffer, Event, buffers_of, live_bytes
from onefold.graph.memory.memory_plan import plan_memory
from onefold.graph.memory.memory_probe import Probe
from onefold.graph.memory.program_events import Work, call_events, events_of

B, S0, S1 = sbp.broadcast, sbp.split(0), sbp.split(1)
# Lifetimes.


def test_what_nothing_frees_is_there_to_the_end():
    events = [Event("a", (("x", 8), ("y", 4))), Event("b", (("z", 2),), ("x",)), Event("c")]
    found = buffers_of(events)
    assert [(b.key, b.nbytes, b.first, b.last) for b in found] == [
        ("x", 8, 0, 1),
        ("y", 4, 0, 2),
        ("z", 2, 1, 2),
    ]
    assert live_bytes(found, 3) == [12, 14, 6]


@pytest.mark.parametrize(
    "events",
    [
        [Event("a", (("x", 1),)), Event("b", (("x", 1),))],
        [Event("a", freed=("x",))],
        [Event("a", (("x", 1),), ("x",)), Event("b", freed=("x",))],
    ],
)
def test_events_that_cannot_be_are_noticed(events):
    with pytest.raises(AssertionError, match="x"):
        buffers_of(events)


def value(number, shape=(16,)):
    return Value(number, Meta.of(shape, torch.float32, device=torch.device("cpu")))


def step(name, inputs, outputs, aliases=False):
    return ProgramStep(name, name, inputs, (), outputs, None, aliases=aliases)


def test_values_of_different_lanes_are_different_buffers():
    """Two micro-batches in pipeline order: both forwards before the first backward."""
    x, w, h, g = (value(number) for number in range(1, 5))
    forward, backward = step("f", (x, w), (h,)), step("b", (h, w), (g,))
    work = [Work(forward, 0), Work(forward, 1), Work(backward, 0), Work(backward, 1)]
    events = events_of(work, 0, [(x, 0), (x, 1)], [w], [(g, 0), (g, 1)])
    assert live_bytes(buffers_of(events), 4) == [64, 128, 192, 192]
    assert [event.freed for event in events] == [(), (), ((3, 0),), ((3, 1),)]


def test_a_step_may_read_from_another_lane():
    x, total, new = (value(number) for number in range(1, 4))
    work = [
        Work(step("first", (x,), (total,)), 0),
        Work(step("more", (total, x), (total,)), 1, (0, 1)),
        Work(step("last", (total,), (new,)), 1),
    ]
    events = events_of(work, 0, [(x, 0), (x, 1)], [], [(new, 1)])
    assert [event.freed for event in events] == [(), ((2, 0),), ((2, 1),)]


def test_a_view_keeps_its_buffer_and_has_none():
    x, h, v, y = (value(number) for number in range(1, 5))
    work = [
        Work(step("f", (x,), (h,))),
        Work(step("unknown view", (h,), (v,), aliases=True)),
        Work(step("g", (v,), (y,))),
    ]
    events = events_of(work, 0, [(x, None)], [], [(y, None)])
    assert [event.made for event in events] == [(((2, None), 64),), (), (((4, None), 64),)]
    assert [event.freed for event in events] == [(), (), ((2, None),)]


def test_a_view_of_an_input_is_not_counted():
    x, v = value(1), value(2)
    events = events_of([Work(step("view", (x,), (v,), aliases=True))], 0, [(x, None)], [], [])
    assert events == [Event("view")]


# Arenas.


def random_buffers(seed, count, events=60, largest=1000):
    rng = random.Random(seed)
    spans = [sorted((rng.randrange(events), rng.randrange(events))) for _ in range(count)]
    return [Buffer(i, 64 * rng.randint(1, largest), *span) for i, span in enumerate(spans)]


def some_buffers(largest=40):
    span = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted)
    one = st.tuples(st.integers(0, 1000), span)
    return st.lists(one, max_size=largest).map(
        lambda found: [Buffer(i, n, *span) for i, (n, span) in enumerate(found)]
    )


@given(some_buffers())
def test_an_arena_is_valid_and_not_below_its_bound(buffers):
    found = arena.plan(buffers)
    arena.check(found)
    assert found.peak >= found.lower_bound
    assert found.peak == max(
        (o + arena.aligned(b.nbytes) for o, b in zip(found.offsets, buffers, strict=True)),
        default=0,
    )
    most = [
        sum(arena.aligned(b.nbytes) for b in buffers if b.first <= t <= b.last) for t in range(13)
    ]
    assert found.lower_bound == max(most)


def brute_force(buffers):
    """The least peak: of every order, each buffer on top of all that it meets.

    Sorted by their offsets in an optimal plan, no buffer then lies higher than there.
    """
    best = sum(arena.aligned(b.nbytes) for b in buffers)
    for order in itertools.permutations(buffers):
        ends = {}
        for b in order:
            meets = [k for k in ends if k.first <= b.last and b.first <= k.last]
            low = max((ends[k] for k in meets), default=0)
            ends[b] = low + arena.aligned(b.nbytes)
        best = min(best, max(ends.values(), default=0))
    return best


@given(some_buffers(largest=5))
def test_tiny_arenas_are_close_to_brute_force(buffers):
    best = brute_force(buffers)
    found = arena.plan(buffers)
    assert found.lower_bound <= best <= found.peak
    assert found.peak <= 1.25 * best


def test_tiny_arenas_are_nearly_always_optimal():
    sets = [random_buffers(seed, 6, events=6, largest=8) for seed in range(150)]
    plans = [arena.plan(each) for each in sets]
    best = [brute_force(each) for each in sets]
    assert sum(p.peak == b for p, b in zip(plans, best, strict=True)) >= 147
    assert max(p.peak / b for p, b in zip(plans, best, strict=True)) <= 1.2


def test_the_improvement_finds_what_no_order_does():
    sets = [random_buffers(seed, 60) for seed in range(20)]
    greedy = [arena.plan(each, tries=0).ratio for each in sets]
    ratios = [arena.plan(each).ratio for each in sets]
    assert all(after <= before for after, before in zip(ratios, greedy, strict=True))
    assert mean(ratios) < 1.015 < mean(greedy) < 1.03
    assert max(ratios) < 1.06


@pytest.mark.parametrize(
    ("offsets", "peak", "said"),
    [
        ((0, 0, 128), 256, "overlaps"),
        ((0, 64, 128), 256, "overlaps"),
        ((0, 128, 96), 256, "lies at"),
        ((0, 128, -64), 256, "lies at"),
        ((0, 128, 192), 192, "beyond"),
        ((0, 128), 256, "one offset"),
    ],
)
def test_a_wrong_arena_is_noticed(offsets, peak, said):
    buffers = (Buffer("a", 100, 0, 2), Buffer("b", 64, 1, 3), Buffer("c", 60, 3, 4))
    good = arena.Arena(buffers, (0, 128, 0), 192, 192)
    arena.check(good)
    with pytest.raises(AssertionError, match=said):
        arena.check(replace(good, offsets=offsets, peak=peak))


def test_an_overlap_under_a_long_buffer_is_noticed():
    """Two that are apart in the order of offsets, but of which the lower reaches over the next."""
    buffers = (Buffer("low", 640, 0, 5), Buffer("in", 64, 0, 5), Buffer("high", 64, 0, 5))
    with pytest.raises(AssertionError, match="overlaps"):
        arena.check(arena.Arena(buffers, (0, 64, 512), 640, 640))


# Programs: the plan against what is held.


@pytest.mark.parametrize("name", MODELS)
def test_the_planned_peak_is_what_a_training_step_holds(name):
    make, where, split = MODELS[name]
    flow.manual_seed(0)
    graph, inputs = Train(make()), inputs_for(where, split)
    ranks = [0] if where is None else list(where.flat_ranks)
    probe = measured(graph, inputs, ranks)
    for rank in ranks:
        plan = graph.memory(rank)
        live = lives(graph.program, rank)
        assert probe.peak(rank) == plan.live == max(live) > 0
        assert probe.live[rank] == live
        assert plan.ratio <= 1.02
        arena.check(plan.arena)


def test_the_check_against_what_is_held_can_fail():
    """A plan that takes views for copies, or counts them for nobody, differs from what is held."""
    graph, inputs = Train(Net(Block(12, B, B, ONE))), inputs_for(ONE, S0)
    probe = measured(graph, inputs, [0])
    program = graph.program
    assert plan_memory(program, 0).live == probe.peak(0)
    planned = lives(program)
    assert probe.live[0] == planned
    copies = replace(program, steps=[replace(s, aliases=False) for s in program.steps])
    assert min(np.subtract(probe.live[0], lives(copies))) < 0
    every = replace(program, steps=[replace(s, aliases=True) for s in program.steps])
    assert plan_memory(every, 0).live < probe.peak(0)


VIEWS = {
    "transpose": lambda x: x.transpose(0, 1) + 1,
    "a reshape that copies": lambda x: x.transpose(0, 1).reshape(-1) * 2,
    "a reshape that does not": lambda x: (x + 1).reshape(-1) * 2,
    "a reshape back": lambda x: (x + 1).transpose(0, 1).transpose(0, 1).reshape(-1) * 2,
    "elementwise on a transpose": lambda x: flow.exp(x.transpose(0, 1)).reshape(-1) * 2,
    "expand": lambda x: (x + 1)[:, :1].expand(6, 8) * x,
    "mean and its repetition": lambda x: (x - x.mean(1, keepdim=True)).exp(),
    "slices": lambda x: (x + 1)[1:, ::2].transpose(0, 1).reshape(-1) * 2,
    "flip and cat": lambda x: flow.cat([x, (x * 2).flip(0)], 0).sum(),
    "diagonal": lambda x: (x + 1).diagonal() * 2,
    "unfold": lambda x: (x + 1).unfold(1, 3, 2).sum(-1),
    "max with indices": lambda x: (x * 2).max(1)[0],
    "softmax of a transpose": lambda x: flow.softmax((x * 2).t(), -1).t().reshape(-1) + 1,
    "matmul of transposes": lambda x: ((x * 2).t() @ (x + 1)).t().reshape(-1) + 1,
    "an output that is an input": lambda x: x.view(-1),
    "an input that is seen": lambda x: x.view(-1)[3:] * 2,
    "draws": lambda x: flow.dropout(x, 0.5) + 1,
    "sources": lambda x: x + flow.arange(8, dtype=flow.float32, **place_of(x)),
    "gather and cut": lambda x: relaid(x + 1, S1) * 2,
    "to partial": lambda x: (x.t() @ x).sum() + 1,
    "cut from whole": lambda x: relaid(relaid(x + 1, B), S0) * 2,
}


def place_of(x):
    return {} if x.is_local else {"placement": x.placement, "sbp": B}


def relaid(x, split):
    return x if x.is_local else x.to_global(x.placement, split)


@pytest.mark.parametrize("where", [None, ONE, PAIR], ids=["local", "one rank", "two ranks"])
@pytest.mark.parametrize("name", VIEWS)
def test_views_and_copies_are_told_apart_at_every_step(name, where):
    place = {} if where is None else {"placement": where, "sbp": S0}
    x = flow.tensor(np.ones((6, 8), np.float32), **place)
    graph = nn.Graph.trace(VIEWS[name])
    ranks = [0] if where is None else list(where.flat_ranks)
    probe = measured(graph, [x], ranks)
    for rank in ranks:
        assert lives(graph.program, rank) == probe.live[rank]


PARTS = {
    "split": lambda x: sum(part * 2 for part in (x + 1).split(2, 1)),
    "unbind": lambda x: sum(part * 2 for part in (x + 1).unbind(1)),
}


@pytest.mark.parametrize("where", [None, ONE, PAIR], ids=["local", "one rank", "two ranks"])
@pytest.mark.parametrize("name", PARTS)
def test_parts_share_the_buffer_of_the_whole(name, where):
    place = {} if where is None else {"placement": where, "sbp": S0}
    x = flow.tensor(np.ones((6, 8), np.float32), **place)
    graph = nn.Graph.trace(PARTS[name])
    ranks = [0] if where is None else list(where.flat_ranks)
    probe = measured(graph, [x], ranks)
    for rank in ranks:
        planned = lives(graph.program, rank)
        assert probe.live[rank] == planned


def test_ranks_of_other_stages_hold_their_own_part(world):
    other = flow.placement("cpu", [2, 3])

    class Stages(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(12, 16, placement=PAIR, sbp=B)
            self.second = nn.Linear(16, 12, placement=other, sbp=S0)

        def forward(self, x):
            return self.second(flow.relu(self.first(x)).to_global(other, B))

    inputs = [
        flow.tensor(np.ones((7, 12), np.float32), placement=where, sbp=split)
        for where, split in ((PAIR, S0), (other, B))
    ]
    graph = Train(Stages())
    probe = measured(graph, inputs, range(4))
    plans = [graph.memory(rank) for rank in range(4)]
    assert [plan.live for plan in plans] == [probe.peak(rank) for rank in range(4)]
    assert [plan.persistent for plan in plans] == [4 * (12 * 16 + 16)] * 2 + [4 * (6 * 16 + 6)] * 2
    assert [plan.inputs for plan in plans] == [4 * 4 * 12, 4 * 3 * 12] + [4 * 7 * 12] * 2


# Whole calls.


def test_gradients_of_micro_batches_are_summed_in_place():
    """A program of one gradient of 1024 bytes: what is held with it, run by run."""

    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(flow.ones(256))

        def forward(self, x):
            return self.weight * x

    class Step1(nn.Graph):
        def __init__(self, count):
            super().__init__()
            self.model = Square()
            self.add_optimizer(flow.optim.SGD(self.model.parameters(), lr=0.1))
            self.config.set_gradient_accumulation_steps(count)

        def build(self, x):
            self.model(x).sum().backward()
            return x.sum()

    kept = {}
    for count in (1, 2, 3):
        graph = Step1(count)
        graph._compile(flow.ones(count, 256))
        assert len(graph.program.gradients) == 1
        adds = [step for step in graph.program.steps if step.name == "add"]
        assert len(adds) == count - 1
        events = call_events(graph.program, 0)
        assert not any(e.made for e in events if e.label == "add")  # in place of the first one
        plan = graph.memory(0)
        arena.check(plan.arena)
        assert plan.persistent == 1024
        assert plan.inputs == 1024 * count
        kept[count] = plan.kept
    assert kept == {1: 4, 2: 2 * 4, 3: 3 * 4}  # the update took the gradients


@pytest.mark.parametrize("micro_batches", [1, 2, 3, 5])
@pytest.mark.parametrize("name", MODELS)
def test_the_planned_peak_is_what_a_call_of_micro_batches_holds(name, micro_batches):
    make, where, split = MODELS[name]
    if split is S0 and where is PAIR:
        micro_batches *= 2
    flow.manual_seed(0)
    graph, inputs = Train(make(), micro_batches), inputs_for(where, split, rows=2 * micro_batches)
    ranks = [0] if where is None else list(where.flat_ranks)
    probe = Probe(compiled(graph, inputs).executable, ranks)
    with flow.no_grad():
        kept = probe.run(inputs)
    del kept
    assert [probe.peak(rank) for rank in ranks] == [graph.memory(rank).live for rank in ranks]


def test_a_graph_says_what_it_needs():
    graph, inputs = Train(two_layers(PAIR)), inputs_for(PAIR, S0, rows=4)
    with pytest.raises(
        OnefoldRuntimeError,
        match=r"call the graph, or compile .* graph\._compile",
    ):
        graph.memory(0)
    graph._compile(*inputs)
    plan = graph.memory(1)
    assert graph.memory(1) is plan
    assert plan.persistent == 4 * (12 * 40 + 40 + 40 * 12 + 12)
    assert plan.inputs == 2 * 4 * 2 * 6 * 12
    assert plan.total == plan.persistent + plan.inputs + plan.peak
    assert plan.live <= plan.lower_bound <= plan.peak
    assert plan.kept == 4  # the loss; the update took the gradients
    text = str(plan)
    assert text.startswith("memory of rank 1, in bytes\n")
    for number in (plan.persistent, plan.peak, plan.lower_bound, plan.total):
        assert f"{number:,}" in text
    with pytest.raises(OnefoldValueError, match=r"rank 2 is in none .* \[0, 1\]"):
        graph.memory(2)
    with pytest.raises(OnefoldTypeError, match="integer"):
        graph.memory(True)


def test_local_tensors_are_on_every_rank():
    graph = nn.Graph.trace(lambda x: x * 2)
    graph(flow.ones(100))
    assert graph.memory(0) == replace(graph.memory(5), rank=0)
    assert graph.memory(5).inputs == 400
    with pytest.raises(OnefoldValueError, match="none of"):
        graph.memory(-1)


def test_the_latest_used_compiled_graph_is_told():
    graph = nn.Graph.trace(lambda x: x * 2)
    for rows in (100, 200, 100):
        graph(flow.ones(rows))
        assert graph.memory(0).inputs == 4 * rows


def test_a_deep_training_step_needs_hardly_more_than_its_bound():
    graph = Train(Net(*(Block(16, B, B, ONE) for _ in range(12))))
    x = [flow.ones(4, 8, 16, placement=ONE, sbp=S0) for _ in range(2)]
    graph._compile(*x)
    plan = graph.memory(0)
    arena.check(plan.arena)
    assert len(plan.arena.buffers) > 300
    assert plan.ratio <= arena.ENOUGH


def test_planning_computes_nothing_and_leaves_real_tensors_behind():
    """Fake tensors in which ops are followed must not end up where real ones are used."""
    graph, inputs = Train(two_layers(ONE)), inputs_for(ONE, S0)
    graph._compile(*inputs)
    before = [p.numpy() for p in graph.model.parameters()]
    graph.memory(0)
    after = [p.numpy() for p in graph.model.parameters()]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert np.isfinite(graph(*inputs).numpy())
