"""Inputs that build() changes in place: the caller's tensors change as in eager mode."""

import numpy as np
import pytest
from small_graphs import SquareMean

import onefold as flow
from onefold import nn, sbp
from onefold.errors import AutogradError, OnefoldError, OnefoldRuntimeError

B, S0 = sbp.broadcast, sbp.split(0)
PAIR, OTHER = flow.placement("cpu", [0, 1]), flow.placement("cpu", [2, 3])
LAYOUTS = {
    "local": {},
    "split": {"placement": PAIR, "sbp": S0},
    "whole": {"placement": PAIR, "sbp": B},
}


def add_and_clear(x):
    x.add_(1)
    x[0] = 0
    return x.sum()


def through_views(x):
    x[1:3].mul_(2)
    x.t()[0].zero_()
    return x[1]


def swap(x, y):
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)
    return x - y


def numbers(layout, rows=4, start=0):
    values = np.arange(start, start + 3 * rows, dtype=np.float32).reshape(rows, 3)
    return flow.tensor(values, **LAYOUTS[layout])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", [add_and_clear, through_views, swap])
def test_changes_are_those_of_eager(function, layout, world):
    graph = nn.Graph.trace(function)
    for start in (0, 5):
        count = 2 if function is swap else 1
        ours = [numbers(layout, start=start + each) for each in range(count)]
        theirs = [numbers(layout, start=start + each) for each in range(count)]
        assert graph(*ours).tolist() == function(*theirs).tolist()
        assert [x.tolist() for x in ours] == [x.tolist() for x in theirs]
    assert "assign %input.0 = " in str(graph.program)


def test_the_base_of_an_input_changes_with_it(world):
    graph = nn.Graph.trace(add_and_clear)
    base = numbers("local")
    other = base.t()
    graph(base[1:])
    assert base.tolist() == [[0, 1, 2], [0, 0, 0], [7, 8, 9], [10, 11, 12]]
    assert other.tolist() == base.t().tolist()


class Scaling(SquareMean):
    """A training step that first changes its input."""

    def build(self, x):
        x.mul_(0.5)
        return super().build(x)


@pytest.mark.parametrize("staged", [False, True])
def test_micro_batches_change_their_parts(staged, world):
    place = {"placement": PAIR, "sbp": B} if staged else {}
    model = nn.Sequential(nn.Linear(3, 3, **place), nn.Linear(3, 3, **place))
    graph = Scaling(model, flow.optim.SGD(model.parameters(), lr=0.1))
    graph.config.set_gradient_accumulation_steps(2)
    if staged:
        model[1].to_global(OTHER, B)
        for stage, ranks in enumerate((PAIR, OTHER)):
            model[stage].to(nn.graph.GraphModule).set_stage(stage, ranks)
    x = numbers("whole" if staged else "local")
    before = x.numpy().copy()
    for _ in range(2):
        graph(x)
        before /= 2
        np.testing.assert_array_equal(x.numpy(), before)


def test_a_view_that_cannot_be_written_leaves_the_step_undone(world):
    model = nn.Linear(3, 3)
    graph = Scaling(model, flow.optim.SGD(model.parameters(), lr=0.1))
    before = model.weight.numpy().copy()
    with pytest.raises(OnefoldError, match="expand"):
        graph(flow.ones(1, 3).expand(4, 3))
    np.testing.assert_array_equal(model.weight.numpy(), before)


def test_what_must_not_change(world):
    graph = nn.Graph.trace(swap)
    base = numbers("local", rows=8)
    for given in [(base, base), (base[:4], base[4:])]:
        with pytest.raises(OnefoldRuntimeError, match="which is also another input"):
            graph(*given)
    x = numbers("local").requires_grad_()
    with pytest.raises(AutogradError, match="changes input 0 in place, which requires grad"):
        graph(x, base[:4])
    with flow.no_grad():
        graph(x, numbers("local", start=7))
    assert x.tolist() == numbers("local", start=7).tolist()

    model = nn.Linear(3, 3)
    add = nn.Graph.trace(lambda x: model(x.add_(1)))
    with pytest.raises(OnefoldRuntimeError, match="a parameter or a buffer"):
        add(model.weight.detach())


def test_an_input_of_all_micro_batches(world):
    class Whole(Scaling):
        def build(self, x, scale):
            scale.add_(1)
            return super().build(x * scale)

    model = nn.Linear(3, 3)
    graph = Whole(model, flow.optim.SGD(model.parameters(), lr=0.1))
    graph.config.set_gradient_accumulation_steps(2, whole=("scale",))
    with pytest.raises(OnefoldRuntimeError, match="input 1 in place, and each micro-batch"):
        graph(numbers("local"), flow.ones(3))
