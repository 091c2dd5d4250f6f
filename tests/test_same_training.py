"""assert_same_training: accepts what trains alike, and names what differs first."""

import subprocess
import sys

import pytest
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.engine.tensor import from_shards
from onefold.testing import assert_same_training
from onefold.utils.custom_op import torch_function

B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)
PAIR = flow.placement("cpu", [0, 1])
MESH = flow.placement("cpu", [[0, 1], [2, 3]])
STRATEGIES = {
    "data parallel": (PAIR, S0, B, B),
    "tensor parallel": (PAIR, B, S0, S1),
    "both": (MESH, (S0, B), (B, S0), (B, S1)),
}

pytestmark = pytest.mark.usefixtures("world")


class Net(nn.Module):
    """Two layers, with a third between them."""

    def __init__(self, middle, placement=None, weight=None, rows=None):
        super().__init__()
        self.up = nn.Linear(5, 8, placement=placement, sbp=weight)
        self.middle = middle
        self.down = nn.Linear(8, 3, placement=placement, sbp=rows)

    def forward(self, x):
        return self.down(self.middle(flow.tanh(self.up(x))))


def training(middle, optimizer=flow.optim.SGD):
    """What makes the training of a net with this layer in its middle."""

    def make(placement=None, data=None, weight=None, rows=None):
        model = Net(middle(), placement, weight, rows)
        batches = [(flow.randn(6, 5, placement=placement, sbp=data),) for _ in range(2)]
        return (
            model,
            optimizer(model.parameters(), lr=0.1),
            lambda x: (model(x) ** 2).mean(),
            batches,
        )

    return make


def shards_changed(x, change):
    """A tensor whose shards are changed behind the engine's back."""
    return from_shards(tuple(change(rank, s) for rank, s in enumerate(x.shards)), x.meta, x.node)


class Layer(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = function


@pytest.mark.parametrize("optimizer", [flow.optim.SGD, flow.optim.AdamW])
def test_what_trains_alike_is_accepted(optimizer):
    assert_same_training(training(lambda: nn.Dropout(0.3), optimizer), STRATEGIES, steps=3)


def test_buffers_are_compared():
    def make(placement=None, data=None):
        place = {} if placement is None else {"placement": placement, "sbp": B}
        model = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))
        model.to_global(**place) if place else model
        x = flow.randn(6, 5, placement=placement, sbp=data)
        return model, flow.optim.SGD(model.parameters(), lr=0.1), lambda x: model(x).sum(), [(x,)]

    assert_same_training(make, {"data parallel": (PAIR, S0)}, steps=2)

    def counting(placement=None, data=None):
        model, optimizer, loss, batches = make(placement, data)
        if placement is not None:
            model[0].momentum = 0.2
        return model, optimizer, loss, batches

    with pytest.raises(AssertionError, match=r"in step 0 the buffer 0.running_mean differs by up"):
        assert_same_training(counting, {"data parallel": (PAIR, S0)})


def broken(layer, strategies=STRATEGIES, **options):
    """What is said of a net with this function as the layer in its middle."""
    with pytest.raises(AssertionError) as caught:
        assert_same_training(training(lambda: Layer(layer)), strategies, **options)
    return str(caught.value)


def test_a_layer_that_adds_its_rank_is_named():
    said = broken(lambda x: shards_changed(x, lambda rank, s: s + rank) if x.is_global else x)
    assert said.startswith("strategy 'data parallel': in step 0 the loss differs by up to ")
    assert ". What differs first is the result of middle (called at " in said
    assert said.endswith("it differs by up to 1 on rank 1")


def test_a_different_dropout_mask_is_named():
    def layer(x):
        if x.is_global:  # as if every rank had a generator of its own
            flow.rand(3)
        return nn.functional.dropout(x, 0.5)

    said = broken(layer, {"tensor parallel": STRATEGIES["tensor parallel"]})
    assert said.startswith("strategy 'tensor parallel': in step 0 the loss differs by")
    assert "first is dropout_with_mask of middle (called at test_same_training.py:" in said
    assert "in layer)" in said


def test_a_wrong_rule_is_named():
    @torch_function("each")  # though each element depends on its whole row
    def centered(x):
        return x - x.mean(-1, keepdim=True)

    assert_same_training(
        training(lambda: Layer(centered)), {"data parallel": STRATEGIES["data parallel"]}, steps=1
    )
    said = broken(centered)
    assert said.startswith("strategy 'tensor parallel': in step 0 the loss differs")
    assert "What differs first is centered of middle (called at test_same_training.py" in said
    assert said.endswith("on ranks 0, 1")


def test_a_wrong_gradient_is_named():
    class Twice(flow.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, dy):
            return dy * (2 if dy.is_global else 1)

    said = broken(Twice.apply)
    # The gradients of `down` are right.
    assert said.startswith("strategy 'data parallel': in step 0 the gradient of up.bias differs")
    assert "What differs first is mul of middle, in backward" in said


def test_a_wrong_update_is_named():
    class Wrong(flow.optim.SGD):
        def step(self):
            super().step()
            param = self.param_groups[0]["params"][2]
            if param.is_global:
                param.shards[-1].add_(1)

    with pytest.raises(AssertionError, match=r"in step 0 the parameter down.weight differs by up "):
        assert_same_training(training(nn.Identity, Wrong), STRATEGIES)


def test_what_is_only_wrong_later_is_named_with_its_step():
    calls = []

    def layer(x):
        calls.append(x)
        return x + (len(calls) > 6 and x.is_global)

    said = broken(layer, steps=4)
    assert said.startswith("strategy 'data parallel': in step 2 the loss differs by")
    assert "add of middle" in said


def test_what_is_only_wrong_in_a_graph_is_named():
    said = broken(lambda x: x * (2 if flow.engine.interpreter.capturing() else 1))
    assert said.startswith("strategy 'one device', as a graph: in step 0 the loss differs by")


def test_other_structures_are_named():
    def make(placement=None, sbp=None):
        model = nn.Linear(4, 4, placement=placement, sbp=sbp, bias=placement is not None)
        x = flow.ones(2, 4, placement=placement, sbp=sbp)
        return model, flow.optim.SGD(model.parameters(), lr=1), lambda x: model(x).sum(), [(x,)]

    with pytest.raises(AssertionError, match="gradient of bias does not exist on one device"):
        assert_same_training(make, {"two": (PAIR, B)})


def test_batches_are_needed():
    with pytest.raises(ValueError, match="gave no batches"):
        assert_same_training(lambda: (*training(nn.Identity)()[:3], []), {})


@pytest.mark.parametrize(
    ("steps", "error", "said"),
    [(0, ValueError, "at least 1"), (-1, ValueError, "at least 1"), (1.5, TypeError, "an integer")],
)
def test_there_must_be_steps(steps, error, said):
    with pytest.raises(error, match=f"assert_same_training: steps must be {said}"):
        assert_same_training(training(nn.Identity), {}, steps=steps)


def test_strategies_have_names():
    with pytest.raises(TypeError, match="strategies must be a dict from names to the arguments"):
        assert_same_training(training(nn.Identity), [(PAIR, S0, B, B)])


def test_processes_agree():
    def program():
        pair = flow.placement("cpu", [0, 1])
        assert_same_training(
            training(lambda: nn.Dropout(0.3)), {"tensor parallel": (pair, B, S0, S1)}, steps=2
        )

        def layer(x):
            return x if x.is_local else shards_changed(x, lambda _, s: s + flow.env.get_rank())

        return broken(layer, {"data parallel": (pair, S0, B, B)}, steps=1)

    first, second = run_ranks(2, program)
    assert first == second
    assert first.endswith("it differs by up to 1 on rank 1")


def test_it_needs_no_test_framework():
    program = "import sys, onefold.testing as t; t.assert_same_training; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "hypothesis" not in done.stdout.split()
