"""CUDA graphs on the GPU give the bits of graphs without them."""

import captured_steps
import captured_updates
import numpy as np
import pytest
import torch
from captured_updates import ON_THE_HOST, RECORDED, assert_same, cycled, names
from device_checks import DEVICE

import onefold as flow

pytestmark = pytest.mark.gpu

OPTIONS = {
    "plain": {},
    "micro-batches": {"parts": 3},
    "in backward": {"in_backward": True},
    "a gradient": {"returns": lambda graph, x: graph.model.up.weight.grad},
    "clipped": {"clip": 0.1},
    "scaled": {"scaler": lambda: flow.amp.GradScaler(init_scale=64.0, growth_interval=2)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_no_bit_changes(name):
    def run(cuda_graph):
        options = dict(OPTIONS[name])
        if "scaler" in options:
            options["scaler"] = options["scaler"]()
        graph = captured_steps.Train(cuda_graph=cuda_graph, **options, device=DEVICE)
        found = captured_steps.trained(graph, captured_steps.batches(6, device=DEVICE))
        return found, graph.cuda_graph_reason

    (wanted, _), (found, text) = run(False), run(True)
    assert text == ""
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


ALL = RECORDED + ON_THE_HOST


@pytest.mark.parametrize(("name", "options"), ALL, ids=names(ALL))
def test_updates_are_those_of_eager_steps(name, options):
    def run(cuda_graph):
        graph = captured_updates.Fit(name, options, cuda_graph=cuda_graph, device=DEVICE)
        found = captured_updates.run(graph, captured_updates.inputs(9, device=DEVICE))
        return found, graph

    (wanted, _), (found, graph) = run(False), run(True)
    assert_same(found, wanted)
    assert graph.cuda_graph_reason == ""
    assert "# between" not in graph.plan(0)


@pytest.mark.parametrize(("name", "options"), RECORDED, ids=names(RECORDED))
def test_scales_change_and_steps_are_skipped(name, options):
    given = captured_updates.inputs(9, skipped=(0, 5), device=DEVICE)

    def run(cuda_graph):
        graph = captured_updates.Fit(
            name, options, cuda_graph=cuda_graph, scaled=True, device=DEVICE
        )
        return captured_updates.run(graph, given), graph.cuda_graph_reason

    (wanted, _), (found, text) = run(False), run(True)
    assert_same(found, wanted)
    assert text == ""


def test_options_are_read_from_memory():
    (wanted, _), (found, text) = (cycled(on, device=DEVICE) for on in (False, True))
    assert_same(found, wanted)
    assert text == ""


def test_a_norm_that_build_returns():
    """Gradients are clipped inside build(), over all parameters."""

    class Clipped(captured_updates.Fit):
        def build(self, x):
            self.model(x).square().mean().backward()
            return flow.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)

    def run(cuda_graph):
        graph = Clipped("SGD", {"momentum": 0.9}, cuda_graph=cuda_graph, clip=None, device=DEVICE)
        found = captured_updates.run(graph, captured_updates.inputs(6, device=DEVICE))
        return found, graph.cuda_graph_reason

    (wanted, _), (found, text) = run(False), run(True)
    assert_same(found, wanted)
    assert text == ""


def test_a_parameter_that_moves():
    graph = captured_steps.Train(device=DEVICE)
    given = captured_steps.batches(4, device=DEVICE)
    for x in given:
        graph(x)
    weight = graph.model.up.weight
    kept = weight.shards
    weight.data = weight.data * 0
    plain = captured_steps.Train(cuda_graph=False, device=DEVICE)
    plain.load_state_dict(graph.state_dict())
    for x in given[:3]:
        flow.manual_seed(5)
        found = graph(x).item()
        flow.manual_seed(5)
        assert plain(x).item() == found
    assert graph.cuda_graph_reason == "" and not torch.equal(kept[0], weight.shards[0])


def test_a_compiled_function():
    x = flow.randn(64, 32, device=DEVICE)
    w = flow.randn(32, 32, device=DEVICE)
    function = flow.compile(lambda x: flow.gelu(x @ w).softmax(1), mode="reduce-overhead")
    with flow.no_grad():
        for _ in range(5):
            x = x + 1
            np.testing.assert_array_equal(function(x).numpy(), flow.gelu(x @ w).softmax(1).numpy())
    assert function.cuda_graph_reason == ""
