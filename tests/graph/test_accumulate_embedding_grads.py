"""Gradients of embeddings that are added to a gradient which is there: in its memory, to the bit.

They are there where Triton does the work; here the programs are told so, and torch runs them.
"""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import onefold as flow
from onefold import nn
from onefold.distributed.world import virtual_world
from onefold.graph.passes import fuse_chains
from onefold.graph.passes.accumulate_embedding_grads import AddEmbeddingGrad

B, S = flow.sbp.broadcast, flow.sbp.split
TWO = flow.placement("cpu", [0, 1])
MESH = flow.placement("cpu", [[0, 1], [2, 3]])
LAYOUTS = {  # of the weight, and of the batch
    "local": ({}, {}),
    "data": ({"placement": TWO, "sbp": B}, {"placement": TWO, "sbp": S(0)}),
    "rows": ({"placement": TWO, "sbp": S(0)}, {"placement": TWO, "sbp": B}),
    "columns": ({"placement": TWO, "sbp": S(1)}, {"placement": TWO, "sbp": B}),
    "both": ({"placement": MESH, "sbp": (B, S(0))}, {"placement": MESH, "sbp": (S(0), B)}),
}
WORDS, WIDTH = 12, 6


@pytest.fixture(autouse=True)
def _on_triton(monkeypatch):
    monkeypatch.setattr(fuse_chains, "uses_triton", lambda device_type: True)


class Tied(nn.Module):
    """A model whose last layer has the embedding's weight; `times` it is read with other words."""

    def __init__(self, where, times=1, **options):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, **options, **where)
        self.times = times

    def forward(self, x, wanted):
        y = sum(self.words((x + number) % WORDS) for number in range(self.times))
        scores = nn.functional.linear(flow.tanh(y), self.words.weight)
        return nn.functional.cross_entropy(scores, wanted)


class Step(nn.Graph):
    def __init__(self, model, look=lambda model: None):
        super().__init__()
        self.model, self.look = model, look
        self.optimizer = flow.optim.SGD(model.parameters(), lr=0.5)
        self.add_optimizer(self.optimizer)

    def build(self, *given):
        loss = self.model(*given)
        loss.backward()
        seen = self.look(self.model)
        return loss if seen is None else (loss, seen)


def batch(where, rows=8):
    rng = np.random.default_rng(rows)
    return [flow.tensor(rng.integers(0, WORDS, rows), **where) for _ in "xy"]


def in_turns(where, data, **options):
    """The weights after steps as a graph, and eagerly, and the graph's steps."""
    flow.manual_seed(4)
    graph = Step(Tied(where, **options))
    flow.manual_seed(4)
    eager = Step(Tied(where, **options))
    for rows in (8, 8, 4):
        graph(*batch(data, rows))
        eager.model(*batch(data, rows)).backward()
        eager.optimizer.step()
        eager.optimizer.zero_grad()
    weights = [step.model.words.weight.numpy() for step in (graph, eager)]
    return *weights, graph.program.steps


def added(steps):
    return [step for step in steps if isinstance(step.op, AddEmbeddingGrad)]


@settings(max_examples=25)
@given(
    st.sampled_from(sorted(LAYOUTS)),
    st.integers(1, 3),
    st.sampled_from([None, 3]),
    st.sampled_from([flow.float32, flow.float64]),
)
def test_no_bit_changes(layout, times, padding, dtype):
    where, data = LAYOUTS[layout]
    options = {"times": times, "padding_idx": padding, "dtype": dtype}
    with virtual_world(4):
        found, wanted, steps = in_turns(where, data, **options)
    np.testing.assert_array_equal(found, wanted)
    assert all(step.place is step.inputs[0] for step in added(steps))
    alone = sum(step.name == "embedding_grad" for step in steps)
    assert len(added(steps)) == times - alone
    assert not alone or layout not in ("local", "data")  # the others may be laid out in two ways


def test_the_memory_of_a_second_gradient_is_saved():
    step = Step(Tied({}))
    step._compile(*batch({}, 64))
    (one,) = added(step.program.steps)
    keys = {b.key[0] for b in step.memory(0).buffers if b.nbytes == 4 * WORDS * WIDTH}
    assert one.outputs[0].number not in keys and one.place.number in keys


NOT = {
    "by frequency": ({"scale_grad_by_freq": True}, None),
    "half precision": ({"dtype": flow.bfloat16}, None),
    "the sum alone": ({}, lambda model: model.words.weight.grad),
}


@pytest.mark.parametrize("name", NOT)
def test_what_stays_as_it_is(name):
    options, look = NOT[name]
    step = Step(Tied({}, **options), look or (lambda model: None))
    step._compile(*batch({}))
    assert bool(added(step.program.steps)) is (name == "the sum alone")


class Twice(Step):
    """The gradient of the last layer, and with the embedding's added to it."""

    seen = False  # whether the former is a result

    def build(self, x, y):
        weight = self.model.words.weight
        (nn.functional.linear(y, weight) ** 2).sum().backward()
        first = weight.grad
        (self.model.words(x) ** 2).sum().backward()
        return first if self.seen else first.sum()


@pytest.mark.parametrize("seen", [False, True])
def test_a_gradient_that_is_read_elsewhere_is_not_written(seen):
    def run(eagerly):
        flow.manual_seed(4)
        step = Twice(Tied({}))
        step.seen = seen
        found = (step.build if eagerly else step)(x, y).numpy().copy()
        if eagerly:
            step.optimizer.step()
        return found, step.model.words.weight.numpy(), step

    x, y = flow.tensor([1, 3, 1]), flow.arange(12.0).view(2, 6) / 8
    (first, wanted, _), (found, weight, step) = run(True), run(False)
    assert not added(step.program.steps)
    np.testing.assert_array_equal(found, first)
    np.testing.assert_array_equal(weight, wanted)


def test_an_input_is_not_written():
    class Given(Step):
        def build(self, x, slope):
            weight = self.model.words.weight
            weight.view(-1).backward(slope)
            self.model.words(x).sum().backward()
            return x

    step, slope = Given(Tied({})), flow.ones(WORDS * WIDTH)
    step(flow.tensor([1, 3, 1]), slope)
    assert not added(step.program.steps)
    np.testing.assert_array_equal(slope.numpy(), np.ones(WORDS * WIDTH))
