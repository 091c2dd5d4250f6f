"""Copies of weights in half precision: written by the updates, never stale, and no bit changes.

They are there where Triton does the work; here the programs are told so, and torch runs them.
"""

from functools import partial

import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.distributed.world import virtual_world
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
    "RMSprop": lambda params: flow.optim.RMSprop(params, lr=0.01, momentum=0.9, centered=True),
    "Adafactor": lambda params: flow.optim.Adafactor(params, lr=0.1),  # writes no copies
}
OPTIMIZERS |= {
    name: partial(getattr(flow.optim, name), lr=0.1)
    for name in "NAdam RAdam Adamax Adagrad Adadelta ASGD Rprop LAMB LARS".split()
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


def lows(graph):
    """The copies of a program, which are what their parameters are."""
    for copy in graph.program.copies:
        assert copy.tensor.meta is copy.param.meta.like(dtype=copy.tensor.dtype)
        for part, low in zip(copy.param.shards, copy.tensor.shards, strict=True):
            assert torch.equal(part.to(low.dtype), low)
    return [copy.tensor for copy in graph.program.copies]


def writers(graph):
    """The names of the steps that write copies."""
    halves = {v.value.number for v in graph.program.variables if v.tensor.dtype is flow.bfloat16}
    return {s.name for s in graph.program.steps for v in s.writes if v.number in halves}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_bit_changes(layout, optimizer, world, monkeypatch):
    wanted = plainly(monkeypatch, layout, optimizer)
    *found, graph = trained(layout, optimizer)
    assert (*found,) == wanted
    assert casts(graph) == []
    assert [y.shape for y in lows(graph)] == [(8, 6), (8,), (6, 8)]
    assert writers(graph) == {"copy_" if optimizer == "Adafactor" else optimizer.lower()}


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


@pytest.mark.parametrize("optimizer", ["SGD", "NAdam", "LAMB", "Adafactor"])
@pytest.mark.parametrize(
    "change", [_copied_into, _past_onefold, _loaded, _by_another_graph, _eagerly]
)
def test_what_changes_a_parameter_makes_its_copy_stale(change, optimizer, monkeypatch):
    wanted = plainly(monkeypatch, "local", optimizer, change)
    *found, graph = trained("local", optimizer, change)
    assert (*found,) == wanted
    assert casts(graph) == []


def test_graphs_share_copies():
    graph, x = setting()
    graph(x)
    graph(flow.ones(2, 6))  # compiled again
    programs = [compiled.program for compiled in graph._compiled.values()]
    first, second = ([id(copy) for copy in program.copies] for program in programs)
    assert sorted(first) == sorted(second) and len(first) == 3


@pytest.mark.parametrize("optimizer", ["SGD", "RMSprop", "NAdam", "LAMB", "LARS", "Adafactor"])
def test_a_skipped_step(optimizer, world, monkeypatch):
    """A gradient that overflows float16 leaves parameters and copies as they are."""

    def scaled():
        graph, x = setting("data", optimizer, dtype=flow.float16)
        scaler = flow.amp.GradScaler(init_scale=2.0**40, growth_interval=2)
        graph.set_grad_scaler(scaler)
        losses = [graph(x).item() for _ in range(40)]
        lows(graph)
        return losses, weights(graph)

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


def same_without(monkeypatch, run):
    """What a run gives, losses and a graph: the same weights as without copies, and no casts."""
    losses, graph = run()
    assert casts(graph) == [] and len(lows(graph)) == len(graph.program.copies) > 1
    with monkeypatch.context() as patched:
        patched.setattr(low_parameters, "uses_triton", lambda device_type: False)
        wanted, other = run()
    assert (losses, weights(graph)) == (wanted, weights(other))
    assert casts(other) and not other.program.copies
    return graph


@pytest.mark.parametrize(
    "zero", [None, {"stage": 1}, {"stage": 2}, {"stage": 3}, {"stage": 3, "shard_restore_level": 0}]
)
def test_clipped_gradients_micro_batches_and_zero(zero, world, monkeypatch):
    def run():
        flow.manual_seed(0)
        where, there = LAYOUTS["data"]
        model = Net(where)
        params = {"params": model.parameters(), "clip_grad_max_norm": 0.1}
        graph = Step(model, flow.optim.AdamW([params], lr=0.1))
        graph.config.set_gradient_accumulation_steps(2)
        if zero is not None:
            graph.config.enable_zero(True, shard_min_size=1, **zero)
        x = flow.randn(4, 6, **there)
        losses = []
        for call in range(4):
            losses.append(graph(x).numpy().tolist())
            if call == 1:
                _loaded(graph, 0)
            if call == 2:
                _loaded(graph, 1)
        return losses, graph

    graph = same_without(monkeypatch, run)
    split = zero is not None and zero["stage"] < 3
    assert writers(graph) == {"copy_" if split else "adamw"}


class Stages(nn.Module):
    """A layer on each of two ranks."""

    def __init__(self):
        super().__init__()
        self.where = [flow.placement("cpu", [rank]) for rank in (0, 1)]
        self.first, self.last = (
            nn.Linear(*sizes, placement=place, sbp=B)
            for sizes, place in zip(((6, 8), (8, 6)), self.where, strict=True)
        )
        for stage, layer in enumerate((self.first, self.last)):
            layer.to(nn.graph.GraphModule).set_stage(stage, self.where[stage])

    def forward(self, x):
        y = flow.relu(self.first(x)).to_global(self.where[1], B)
        return self.last(y).square().mean()


def in_stages(optimizer, schedule):
    """Losses of a graph with two stages, of which one call is skipped, and the graph."""
    flow.manual_seed(0)
    model = Stages()
    graph = Step(model, OPTIMIZERS[optimizer](model.parameters()), flow.float16)
    graph.config.set_gradient_accumulation_steps(4)
    graph.config.set_schedule(schedule)
    graph.set_grad_scaler(scaler := flow.amp.GradScaler(init_scale=2.0**20, growth_interval=20))
    x = flow.randn(8, 6, placement=model.where[0], sbp=B)
    losses = []
    for call in range(9):
        losses.append(graph(x).numpy().tolist())
        if call == 6:
            _loaded(graph, 0)
        if call == 7:
            _loaded(graph, 1)
    assert scaler.get_scale() < 2.0**20  # calls were skipped
    return losses, graph


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
@pytest.mark.parametrize("optimizer", ["AdamW", "RMSprop", "LAMB", "Adafactor"])
def test_stages(optimizer, schedule, world, monkeypatch):
    graph = same_without(monkeypatch, lambda: in_stages(optimizer, schedule))
    assert len(graph.program.copies) == 4


def test_stages_on_processes():
    def run():
        set_triton = pytest.MonkeyPatch()
        for module in (low_parameters, fuse_chains):
            set_triton.setattr(module, "uses_triton", lambda device_type: True)
        losses, graph = in_stages("AdamW", "1f1b")
        assert casts(graph) == [] and len(lows(graph)) == 4
        return losses

    with virtual_world():
        wanted = run()
    for found in run_ranks(2, run, timeout=120.0):
        assert found == wanted
