"""What a program changes between calls of a graph; the next call is that of eager mode."""

import numpy as np
import pytest
from small_graphs import SquareMean

import onefold as flow
from onefold import nn


def train_both(between):
    """Final parameters and buffers in eager mode and by a graph; `between(call, model)` changes."""
    found = []
    for in_graph in (False, True):
        flow.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0), nn.LeakyReLU(0.1), nn.Linear(8, 4)
        )
        optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
        graph = SquareMean(model, optimizer)
        for call in range(5):
            x = flow.randn(6, 4)
            between(call, model)
            if in_graph:
                graph(x)
                continue
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        found.append([x.numpy() for x in (*model.parameters(), *model.buffers())])
    return found


def hooks():
    handles = []

    def between(call, model):
        if call in (1, 3):
            handles.append(model[0].weight.register_hook(lambda grad: grad * 3))
            handles.append(
                model[4].bias.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(call))
            )
        if call in (2, 4):
            handles.pop().remove()
            handles.pop().remove()

    return between


def settings():
    def between(call, model):
        model[2].p = 0.2 * (call % 3)
        model[1].momentum = (0.1, None, 0.3, 0.3, 0.1)[call]
        model[1].eps = 1e-5 if call < 3 else 1e-2
        model[3].negative_slope = 0.1 * call

    return between


CHANGES = {"hooks of parameters": hooks, "settings of layers": settings}


@pytest.mark.parametrize("change", CHANGES)
def test_training_goes_on_as_in_eager(change, world):
    eager, graph = train_both(CHANGES[change]())
    for ours, theirs in zip(graph, eager, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_new_tensors_are_made_as_eager_makes_them_now(world):
    graph = nn.Graph.trace(lambda x: x + flow.ones(2))
    x = flow.ones(2)
    assert graph(x).dtype is flow.float32
    flow.set_default_dtype(flow.float64)
    try:
        assert graph(x).dtype is flow.float64
    finally:
        flow.set_default_dtype(flow.float32)
    assert graph(x).dtype is flow.float32

    ranks, broadcast = flow.placement("cpu", [0, 1]), flow.sbp.broadcast
    y = x.to_global(ranks, broadcast)
    made = nn.Graph.trace(lambda x: flow.cat([x, flow.zeros(2)]))
    with flow.utils.global_view.global_mode(True, placement=ranks, sbp=broadcast):
        assert made(y).tolist() == [1, 1, 0, 0]
    with pytest.raises(flow.errors.MixedTensorsError):
        made(y)
    with flow.utils.global_view.global_mode(True, placement=ranks, sbp=broadcast):
        assert made(y).tolist() == [1, 1, 0, 0]
