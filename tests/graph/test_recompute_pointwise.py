"""What backward computes again, what is moved up to be one kernel, and that no bit changes.

The passes work where Triton does; here they are told so, and the references run what they make.
"""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from small_graphs import SquareMeanSGD
from training_steps import compiled

import onefold as flow
from onefold import nn
from onefold.distributed.world import virtual_world
from onefold.graph.memory_traffic import read_and_written
from onefold.graph.passes import fuse_chains

F = nn.functional
B, S = flow.sbp.broadcast, flow.sbp.split


@pytest.fixture(autouse=True)
def _fusing(monkeypatch):
    monkeypatch.setattr(fuse_chains, "uses_triton", lambda device_type: True)


def tanh_gelu(x):
    return 0.5 * x * (1.0 + flow.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


ACTIVATIONS = {
    "silu": F.silu,
    "gelu": F.gelu,
    "sigmoid": flow.sigmoid,
    "by hand": lambda x: x * flow.sigmoid(x),
    "many ops": tanh_gelu,
}


class Gated(nn.Module):
    def __init__(self, act, width=8):
        super().__init__()
        self.act = ACTIVATIONS[act]
        self.gate, self.up = (nn.Linear(width, 16, bias=False) for _ in range(2))
        self.down = nn.Linear(16, width, bias=False)

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))


def crossing(program):
    """The values that forward makes and backward reads, without views."""
    made = {v.number for step in program.steps if not step.backward for v in step.outputs}
    backward = [step for step in program.steps if step.backward and not step.aliases]
    return {v.number for step in backward for v in step.reads() if v.number in made}


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_a_gated_activation_keeps_gate_up_and_its_result(world, act):
    net, x = Gated(act), flow.randn(6, 8)
    graph = SquareMeanSGD(net)
    graph(x)
    program = compiled(graph, [x]).program
    products = [v for step in program.steps for v in step.outputs if v.meta.shape == (6, 16)]
    kept = [v for v in products if v.number in crossing(program)]
    assert len(kept) == 3  # the two products, and what `down` takes
    (backward,) = [
        step for step in program.steps
        if step.backward and step.name == "fused" and step.outputs[0].meta.shape == (6, 16)
    ]  # fmt: skip
    assert len(backward.outputs) == 2 and len(tuple(backward.reads())) == 3


def trained(net, fused, x, monkeypatch, amp):
    monkeypatch.setattr(fuse_chains, "uses_triton", lambda device_type: fused)
    graph = SquareMeanSGD(net, amp)
    losses = [graph(x).item() for _ in range(3)]
    weights = [shard for p in net.parameters() for shard in p.shards]
    return losses, weights, sum(map(read_and_written, compiled(graph, [x]).program.steps))


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("sbp", [B, S(0)], ids=str)
@pytest.mark.parametrize("act", ["silu", "many ops"])
def test_training_has_the_same_bits(monkeypatch, act, sbp, amp):
    results = []
    for fused in (True, False):
        with virtual_world():
            flow.manual_seed(3)
            placement = flow.placement("cpu", [0, 1])
            net = Gated(act).to_global(placement, B)
            x = flow.randn(6, 8).to_global(placement, sbp)
            results.append(trained(net, fused, x, monkeypatch, amp))
    (losses, weights, traffic), (other, others, before) = results
    assert losses == other and traffic < before
    assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))


def kept_values(function, *shapes):
    """What backward reads of forward's own values, of a sum of this function's results."""
    parameters = [nn.Parameter(flow.randn(*shape)) for shape in shapes]

    class Step(nn.Graph):
        def __init__(self):
            super().__init__()
            self.held = nn.ParameterList(parameters)
            self.add_optimizer(flow.optim.SGD(parameters, lr=0.1))

        def build(self):
            loss = function(*self.held).sum()
            loss.backward()
            return loss

    graph = Step()
    graph()
    program = compiled(graph, []).program
    made = {v.number: step.name for step in program.steps for v in step.outputs}
    return sorted(made[number] for number in crossing(program))


def test_what_another_step_needs_is_kept(world):
    # A product needs the value in memory; so does what asks for it at the end.
    assert kept_values(lambda a, b: flow.exp(a @ a) @ b, (4, 4), (4, 4)) == ["fused"]
    assert kept_values(lambda a: flow.exp(flow.sin(a).softmax(-1)) * 2.0, (4, 4)) != []
    # The last of three ops follows from what the gradient of the second needs.
    assert kept_values(lambda a: flow.exp(flow.sin(a * 2.0)) * 3.0, (4, 4)) == ["mul"]


def test_gradients_of_pipelines_stay_in_their_stages():
    with virtual_world():
        first, second = (flow.placement("cpu", [rank]) for rank in (0, 1))
        flow.manual_seed(0)
        nets = [Gated("silu").to_global(place, B) for place in (first, second)]

        class Stages(nn.Graph):
            def __init__(self):
                super().__init__()
                self.a, self.b = nets
                for index, (net, place) in enumerate(zip(nets, (first, second), strict=True)):
                    net.to(nn.graph.GraphModule).set_stage(index, place)
                self.config.set_gradient_accumulation_steps(2)
                parameters = [p for net in nets for p in net.parameters()]
                self.add_optimizer(flow.optim.SGD(parameters, lr=0.1))

            def build(self, x):
                loss = self.b(self.a(x).to_global(second, B)).square().mean()
                loss.backward()
                return loss

        graph = Stages()
        x = flow.randn(4, 8, placement=first, sbp=B)
        found = graph(x).numpy().mean()
        flow.manual_seed(0)
        again = [Gated("silu").to_global(first, B) for _ in range(2)]
        np_loss = again[1](again[0](x)).square().mean().item()
        assert abs(found - np_loss) < 1e-5


@settings(max_examples=30)
@given(
    links=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=1, max_size=8),
    product=st.integers(0, 6),
)
def test_any_network_has_the_bits_of_eager(links, product):
    functions = [flow.exp, flow.sigmoid, F.silu, lambda v: v * 0.5, flow.tanh, flow.sin]

    def function(x, w):
        values = [x, x @ w]
        for kind, at in links:
            value = values[at % len(values)]
            values += [functions[kind](value), functions[kind](value) * values[-1]]
        return (values[product % len(values)] @ w + values[-1]).sum()

    with virtual_world():
        flow.manual_seed(1)
        x, w = flow.randn(4, 4), nn.Parameter(flow.randn(4, 4))
        wanted = function(x, w)
        wanted.backward()
        grad = w.grad.to_torch().clone()

        class Step(nn.Graph):
            def __init__(self):
                super().__init__()
                self.held = nn.ParameterList([w])

            def build(self, x):
                loss = function(x, w)
                return loss, flow.autograd.grad(loss, [w])[0]

        loss, found = Step()(x)
        for a, b in ((loss.to_torch(), wanted.to_torch().detach()), (found.to_torch(), grad)):
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
