"""Copies of weights in half precision: written by the optimizers, never stale, and no bit changes.

They are there where Triton does the work; here the programs are told so, and torch runs them.
"""

import pytest
import torch

import onefold as flow
from onefold import nn
from onefold.graph.passes import fuse_chains, low_parameters

B, S = flow.sbp.broadcast, flow.sbp.split
LAYOUTS = {
    "local": ({}, {}),
    "data": (
        {"placement": flow.placement("cpu", [0, 1]), "sbp": B},
        {"placement": flow.placement("cpu", [0, 1]), "sbp": S(0)},
    ),
    "tensor": (
        {"placement": flow.placement("cpu", [0, 1, 2]), "sbp": S(0)},
        {"placement": flow.placement("cpu", [0, 1, 2]), "sbp": B},
    ),
}
OPTIMIZERS = {
    "AdamW": lambda params: flow.optim.AdamW(params, lr=0.1, weight_decay=0.1),
    "Adam": lambda params: flow.optim.Adam(params, lr=0.1, weight_decay=0.1, amsgrad=True),
    "SGD": lambda params: flow.optim.SGD(params, lr=0.1, momentum=0.9),
    "RMSprop": lambda params: flow.optim.RMSprop(params, lr=0.01),
}


@pytest.fixture(autouse=True)
def _copying(monkeypatch):
    for module in (low_parameters, fuse_chains):
        monkeypatch.setattr(module, "uses_triton", lambda device_type: True)


class Net(nn.Module):
    """A norm between two layers, of which the last is used twice."""

    def __init__(self, where):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8, **where), nn.Linear(8, 6, bias=False, **where)
        plain = {**where, "sbp": B} if where else {}
        self.norm = nn.RMSNorm(8, **plain)

    def forward(self, x):
        y = self.norm(self.first(x))
        return self.last(flow.relu(self.first(self.last(y)))).square().mean()


class Step(nn.Graph):
    def __init__(self, model, optimizer, dtype=flow.bfloat16):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)
        if dtype is not None:
            self.config.enable_amp(dtype=dtype)

    def build(self, x):
        loss = self.model(x)
        loss.backward()
        return loss


def setting(layout="local", optimizer="AdamW", dtype=flow.bfloat16):
    """A graph that trains a model, and its input; always the same."""
    flow.manual_seed(0)
    where, there = LAYOUTS[layout]
    model = Net(where)
    x = flow.randn(4, 6, **there)
    return Step(model, OPTIMIZERS[optimizer](model.parameters()), dtype), x


def weights(graph):
    return [p.numpy().tolist() for p in graph.model.parameters()]


def trained(layout, optimizer, change=lambda graph, number: None, **how):
    """The losses and the weights after some calls, and the graph."""
    graph, x = setting(layout, optimizer, **how)
    losses = []
    for number in range(4):
        losses.append(graph(x).item())
        change(graph, number)
    return losses, weights(graph), graph


def plainly(monkeypatch, *args, **how):
    """The same without copies."""
    with monkeypatch.context() as patched:
        patched.setattr(low_parameters, "uses_triton", lambda device_type: False)
        return trained(*args, **how)[:2]


def casts(graph):
    """The variables that the program casts."""
    names = {variable.value.number for variable in graph.program.variables}
    alone = [part for step in graph.program.steps for part in step.parts or (step,)]
    return [s for s in alone if s.name == "cast" and s.source.number in names]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_bit_changes(layout, optimizer, world, monkeypatch):
    wanted = plainly(monkeypatch, layout, optimizer)
    *found, graph = trained(layout, optimizer)
    assert (*found,) == wanted
    copies = [v.tensor for v in graph.program.variables if v.tensor.dtype is flow.bfloat16]
    if optimizer == "RMSprop":
        assert len(casts(graph)) == 3 and not copies  # its update writes no copies
        return
    assert casts(graph) == []
    assert [y.shape for y in copies] == [(8, 6), (8,), (6, 8)]
    params = [graph.model.first.weight, graph.model.first.bias, graph.model.last.weight]
    for param, copy in zip(params, copies, strict=True):
        assert copy.meta is param.meta.like(dtype=flow.bfloat16)
        for part, low in zip(param.shards, copy.shards, strict=True):
            assert torch.equal(part.bfloat16(), low)


def _copied_into(graph, number):
    if number == 1:
        with flow.no_grad():
            graph.model.first.weight.copy_(graph.model.first.weight * 2)


def _past_onefold(graph, number):
    for part in {id(part): part for part in graph.model.last.weight.shards}.values():
        part.mul_(1.5)


def _loaded(graph, number):
    if number == 0:
        graph.kept = {name: x.clone() for name, x in graph.model.state_dict().items()}
    else:
        graph.model.load_state_dict(graph.kept)


def _by_another_graph(graph, number):
    if number == 0:
        graph.others = [Step(graph.model, flow.optim.SGD(graph.model.parameters(), lr=0.5))]
    graph.others[0](flow.ones(4, 6))


def _eagerly(graph, number):
    parameters = [*graph.model.parameters()]
    optimizer = flow.optim.SGD(parameters, lr=0.5)
    graph.model(flow.ones(4, 6)).backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize(
    "change", [_copied_into, _past_onefold, _loaded, _by_another_graph, _eagerly]
)
def test_what_changes_a_parameter_makes_its_copy_stale(change, monkeypatch):
    wanted = plainly(monkeypatch, "local", "SGD", change)
    *found, graph = trained("local", "SGD", change)
    assert (*found,) == wanted
    assert casts(graph) == []


def test_graphs_share_copies():
    graph, x = setting()
    graph(x)
    graph(flow.ones(2, 6))  # compiled again
    programs = [compiled.program for compiled in graph._compiled.values()]
    first, second = ([id(copy) for copy in program.copies] for program in programs)
    assert sorted(first) == sorted(second) and len(first) == 3


def test_a_skipped_step(world, monkeypatch):
    """A gradient that overflows float16 leaves parameters and copies as they are."""

    def scaled():
        graph, x = setting("data", "SGD", dtype=flow.float16)
        scaler = flow.amp.GradScaler(init_scale=2.0**40, growth_interval=2)
        graph.set_grad_scaler(scaler)
        return [graph(x).item() for _ in range(40)], weights(graph)

    found = scaled()
    with monkeypatch.context() as patched:
        patched.setattr(low_parameters, "uses_triton", lambda device_type: False)
        assert found == scaled()
    assert len(set(found[0][:3])) == 1 and len(set(found[0])) > 3


def test_a_cast_that_is_returned_is_no_copy():
    """The next call would write into it."""

    class Returning(Step):
        def build(self, x):
            low = self.model.first.weight.bfloat16()
            super().build(x)
            return low.t()

    model = Net({})
    graph = Returning(model, flow.optim.SGD(model.parameters(), lr=0.1))
    before = model.first.weight.detach().bfloat16().t().float().numpy().tolist()
    low = graph(flow.randn(4, 6))
    graph(flow.randn(4, 6))
    assert low.float().numpy().tolist() == before
    assert [step.source.name for step in casts(graph)] == ["model.first.weight"]


@pytest.mark.parametrize("zero", [False, True])
def test_clipped_gradients_micro_batches_and_zero(zero, world, monkeypatch):
    def trained():
        flow.manual_seed(0)
        where, there = LAYOUTS["data"]
        model = Net(where)
        params = {"params": model.parameters(), "clip_grad_max_norm": 0.1}
        graph = Step(model, flow.optim.AdamW([params], lr=0.1))
        graph.config.set_gradient_accumulation_steps(2)
        if zero:
            graph.config.enable_zero(True, stage=2, shard_min_size=1)
        x = flow.randn(4, 6, **there)
        return [graph(x).numpy().tolist() for _ in range(3)], weights(graph), casts(graph)

    *found, left = trained()
    with monkeypatch.context() as patched:
        patched.setattr(low_parameters, "uses_triton", lambda device_type: False)
        *wanted, _ = trained()
    assert found == wanted
    assert bool(left) is zero  # parts of parameters have no copies
