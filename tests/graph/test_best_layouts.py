"""The best layouts of programs: known strategies are found, and no strategy is better."""

from itertools import product
from math import prod

import numpy as np
import pipelines
import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.engine import boxing
from onefold.engine.meta import Meta
from onefold.engine.sbp import short
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from onefold.graph.hardware import read
from onefold.graph.layouts import Training, best_layouts
from onefold.graph.layouts.layout_costs import boxing_time
from onefold.graph.passes.layout_search import search_layouts
from onefold.graph.simulator import HardwareCosts
from onefold.nn.graph_layouts import best_layouts as layouts_of

B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)
F = nn.functional

pytestmark = pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")


class Block(nn.Module):
    """A transformer block; `kinds` are the layouts of columns, rows, and all others."""

    def __init__(self, where, width, heads, kinds=(B, B, B)):
        super().__init__()
        columns, rows, whole = (
            {"placement": where, "sbp": kind if isinstance(kind, tuple) else (kind,) * where.ndim}
            for kind in kinds
        )
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, **whole), nn.LayerNorm(width, **whole)
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False, **columns) for _ in "qkv")
        self.out = nn.Linear(width, width, bias=False, **rows)
        self.up = nn.Linear(width, 4 * width, bias=False, **columns)
        self.down = nn.Linear(4 * width, width, bias=False, **rows)

    def forward(self, x):
        batch, length, width = x.shape
        y = self.norm1(x)
        q, k, v = (
            layer(y).view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.out(y.reshape(batch, length, width))
        return x + self.down(flow.gelu(self.up(self.norm2(x))))


class Train(nn.Graph):
    def __init__(self, model, auto=False, rate=0.1, micro=1):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=rate, momentum=0.9))
        self.config.set_gradient_accumulation_steps(micro)
        self.config.enable_auto_parallel(auto)
        self.config.enable_auto_parallel_ignore_user_sbp_config(auto)

    def build(self, x):
        loss = flow.tanh(self.model(x)).square().mean()
        loss.backward()
        return loss


def mesh_of(*shape):
    return flow.placement("cuda", np.arange(prod(shape)).reshape(shape).tolist())


def program_of(model, x):
    graph = Train(model)
    graph._compile(x)
    return graph._latest("program").captured


def block_program(mesh, width, batch, kinds=(B, B, B), given=B):
    where = mesh_of(*mesh)
    model = Block(where, width, 8 if width < 128 else width // 128, kinds).bfloat16()
    sbp = given if isinstance(given, tuple) else (given,) * len(mesh)
    x = flow.zeros(batch, 2048, width, placement=where, sbp=sbp, dtype=flow.bfloat16)
    return program_of(model, x)


def stored(choice):
    return {name.removeprefix("model."): short(sbp) for name, sbp in choice.parameters.items()}


@pytest.mark.parametrize("mesh", [(4,), (4, 2), (2, 2, 2)])
def test_the_time_of_a_boxing_is_that_of_its_plan(mesh):
    with flow.planning(prod(mesh)):
        where = mesh_of(*mesh)
        kinds = [B, flow.sbp.partial_sum, S0, S1, flow.sbp.split(2)]
        layouts = list(product(kinds, repeat=len(mesh)))[:: 1 + 6 * (len(mesh) == 3)]
        metas = [Meta.of((64, 96, 256), torch.bfloat16, where, each) for each in layouts]
        for src, dst in product(metas, metas):
            planned = boxing.plan(src, dst).time
            assert boxing_time(src, dst) == pytest.approx(planned, rel=0.02, abs=1e-9)


COLUMNS, ROWS = ("q", "k", "v", "up"), ("out", "down")


@pytest.mark.parametrize("cost", [None, HardwareCosts(read("h100"))], ids=["eager", "h100"])
def test_megatron_on_one_axis(cost):
    """Shoeybi et al., "Megatron-LM" (2019), is found for few tokens and wide weights."""
    with flow.planning(8):
        program = block_program((8,), 4096, 1)
        choice = best_layouts(program, cost=cost)
        found = stored(choice)
        assert {found[f"{name}.weight"] for name in COLUMNS} == {"(S0)"}
        assert {found[f"{name}.weight"] for name in ROWS} == {"(S1)"}
        assert {found[f"norm{i}.{name}"] for i in (1, 2) for name in ("weight", "bias")} == {"(B)"}
        assert choice.lower_bound == choice.seconds < choice.start
        after = search_layouts(program, set(choice.parameters))
        linears = [step for step in after.steps if step.name == "linear"]
        made = [short(step.outputs[0].meta.nd_sbp) for step in linears]
        assert made == ["(S2)"] * 3 + ["(P)", "(S2)", "(P)"]
        attention = next(step for step in after.steps if step.name == "attention")
        assert short(attention.outputs[0].meta.nd_sbp) == "(S1)"  # the heads


class Mlp(nn.Module):
    def __init__(self, where, width):
        super().__init__()
        how = {"placement": where, "sbp": (B,) * where.ndim}
        self.norm = nn.LayerNorm(width, **how)
        self.up = nn.Linear(width, 4 * width, **how)
        self.down = nn.Linear(4 * width, width, **how)

    def forward(self, x):
        return x + self.down(flow.gelu(self.up(self.norm(x))))


def test_data_and_tensor_parallel_on_two_axes():
    """Each rank of the one axis works on a part of the batch, of the other on a part of weights."""
    with flow.planning(16):
        where = mesh_of(2, 8)
        x = flow.zeros(8, 2048, 8192, placement=where, sbp=(B, B), dtype=flow.bfloat16)
        program = program_of(Mlp(where, 8192).bfloat16(), x)
        choice = best_layouts(program)
        assert choice.lower_bound == choice.seconds
        assert short(choice.inputs["input.0"]) == "(S0, B)"
        found = stored(choice)
        assert found["up.weight"][-3:] == "S0)" and found["down.weight"][-3:] == "S1)"
        after = search_layouts(program, set(choice.parameters))
        made = [short(s.outputs[0].meta.nd_sbp) for s in after.steps if s.name == "linear"]
        assert made == ["(S0, S2)", "(S0, P)"]


class AlexNet(nn.Module):
    """Krizhevsky, "One weird trick for parallelizing convolutional neural networks" (2014)."""

    def __init__(self, where):
        super().__init__()
        sizes = [(3, 64, 11, 4, 2), (64, 192, 5, 1, 2), (192, 384, 3, 1, 1), (384, 256, 3, 1, 1),
                 (256, 256, 3, 1, 1)]  # fmt: skip
        self.convolutions = nn.ModuleList(nn.Conv2d(*size).to_global(where, B) for size in sizes)
        self.linears = nn.ModuleList(
            nn.Linear(*size, placement=where, sbp=B)
            for size in ((9216, 4096), (4096, 4096), (4096, 1000))
        )

    def forward(self, x):
        for i, convolution in enumerate(self.convolutions):
            x = flow.relu(convolution(x))
            if i in (0, 1, 4):
                x = F.max_pool2d(x, 3, 2)
        x = flow.flatten(x, 1)
        for linear in self.linears:
            x = flow.relu(linear(x))
        return x


@pytest.mark.parametrize(("batch", "ranks"), [(128, 8), (1024, 4)])
def test_one_weird_trick(batch, ranks):
    with flow.planning(ranks):
        where = mesh_of(ranks)
        x = flow.zeros(batch, 3, 224, 224, placement=where, sbp=B)
        choice = best_layouts(program_of(AlexNet(where), x))
        assert choice.lower_bound == choice.seconds
        assert short(choice.inputs["input.0"]) == "(S0)"
        found = stored(choice)
        assert {found[f"convolutions.{i}.weight"] for i in range(5)} == {"(B)"}
        assert "(B)" not in {found[f"linears.{i}.weight"] for i in range(3)}


STRATEGIES = {
    "data": ((B, B, B), S0),
    "tensor": ((S0, S1, B), B),
    "stored in shards": ((S0, S0, S0), S0),
}
HYBRIDS = {
    "data": (((B, B), (B, B), (B, B)), (S0, S0)),
    "tensor": (((S0, S0), (S1, S1), (B, B)), (B, B)),
    "hybrid": (((B, S0), (B, S1), (B, B)), (S0, B)),
    "stored in shards": (((S0, S0), (S0, S0), (S0, S0)), (S0, S0)),
}


@pytest.mark.parametrize(
    ("mesh", "width", "batch", "strategies"),
    [((8,), 4096, 1, STRATEGIES), ((8,), 1024, 32, STRATEGIES), ((2, 4), 2048, 16, HYBRIDS)],
)
def test_no_strategy_is_better(mesh, width, batch, strategies):
    with flow.planning(prod(mesh)):
        best = best_layouts(block_program(mesh, width, batch))
        for kinds, given in strategies.values():
            program = block_program(mesh, width, batch, kinds, given)
            other = best_layouts(program, parameters=(), inputs=False)
            assert best.seconds <= other.seconds * (1 + 1e-9) <= other.start * (1 + 1e-9)


def test_a_budget_of_memory():
    with flow.planning(8):
        program = block_program((8,), 2048, 16)
        free = best_layouts(program)
        budget = 0.8 * free.bytes
        within = best_layouts(program, memory=budget)
        assert within.bytes <= budget and within.seconds >= free.seconds
        assert within.lower_bound <= within.seconds * (1 + 1e-9)
        assert best_layouts(program, memory=free.bytes).seconds == free.seconds
        with pytest.raises(OnefoldValueError, match="the budget is 1,000 bytes, but every choice"):
            best_layouts(program, memory=1000)


def test_what_surrounds_the_program():
    """Gradients of many micro-batches are reduced once; what the optimizer keeps takes memory."""
    with flow.planning(8):
        program = block_program((8,), 1024, 8)
        one = best_layouts(program)
        four = best_layouts(program, training=Training(micro_batches=4))
        assert one.seconds < four.seconds < 4 * one.seconds
        assert one.bytes < best_layouts(program, training=Training(kept=16.0)).bytes
        assert one.bytes < best_layouts(program, training=Training(in_flight=4)).bytes
        again = best_layouts(program, training=Training(regather=True))
        assert again.seconds >= one.seconds * (1 - 1e-9)


def test_bad_input(world):
    with flow.planning(2):
        program = block_program((2,), 64, 1)
        with pytest.raises(
            OnefoldValueError, match=r"parameters has 'weights', but the parameters .*'model\.down"
        ):
            best_layouts(program, parameters=["weights"])
        graph = Train(Block(mesh_of(2), 64, 8))
        x = flow.zeros(2, 4, 64, placement=mesh_of(2), sbp=B)
        graph._compile(x)
        with pytest.raises(OnefoldValueError, match="without the optimizers' steps"):
            best_layouts(graph.program)
        with pytest.raises(OnefoldTypeError, match=r"needs an nn\.Graph, but got Mlp"):
            layouts_of(Mlp(mesh_of(2), 64))
        with pytest.raises(OnefoldValueError, match="h1000"):
            layouts_of(graph, "h1000")
        graph.config.enable_zero()
        graph.config.enable_auto_parallel()
        graph.config.enable_auto_parallel_ignore_user_sbp_config()
        with pytest.raises(OnefoldRuntimeError, match="leave one of them out"):
            graph._compile(x)
        with pytest.raises(OnefoldTypeError, match="mode must be True or False"):
            graph.config.enable_auto_parallel(1)


def trained(auto, mesh, batch, micro=1, steps=3):
    """Losses and parameters of a few steps on CPU, and the layouts of the parameters."""
    flow.manual_seed(1)
    where = flow.placement("cpu", mesh)
    model = Mlp(where, 256)
    graph = Train(model, auto, micro=micro)
    x = flow.randn(batch, 256, placement=where, sbp=(S0, *(B,) * (where.ndim - 1)))
    more = flow.randn(2 * batch, 256, placement=where, sbp=x.sbp)
    found = [graph(each).numpy() for each in (*[x] * steps, more, x)]
    layouts = {name: short(p.sbp) for name, p in model.named_parameters()}
    return [*found, *[p.numpy() for p in model.parameters()]], layouts


def assert_same_training(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("mesh", "batch", "micro"),
    [([0, 1, 2, 3], 8, 1), ([0, 1, 2, 3], 2048, 1), ([[0, 1], [2, 3]], 16, 2)],
)
def test_values_are_those_of_eager_layouts(mesh, batch, micro, world):
    wanted, before = trained(False, mesh, batch, micro)
    found, after = trained(True, mesh, batch, micro)
    assert_same_training(found, wanted)
    if batch < 1024:
        assert after["up.weight"] != before["up.weight"]


def test_processes_train_as_virtual_ranks(world):
    wanted, layouts = trained(True, [0, 1], 8)
    for found, where in run_ranks(2, lambda: trained(True, [0, 1], 8)):
        assert where == layouts
        assert_same_training(found, wanted)


def test_parameters_stay_unless_they_are_to_be_chosen(world):
    where = flow.placement("cpu", [0, 1, 2, 3])
    model = Mlp(where, 256)
    graph = Train(model)
    graph.config.enable_auto_parallel()
    graph(flow.randn(8, 256, placement=where, sbp=S0))
    assert {short(p.sbp) for p in model.parameters()} == {"(B)"}
    graph.config.enable_auto_parallel_ignore_user_sbp_config()
    graph(flow.randn(8, 256, placement=where, sbp=S0))
    assert short(model.up.weight.sbp) == "(S0)"


def test_state_of_the_optimizer_follows(world):
    """Momentum from steps before the layouts are chosen is that of the new layouts after."""

    def run(auto):
        flow.manual_seed(2)
        where = flow.placement("cpu", [0, 1, 2, 3])
        model = Mlp(where, 256)
        graph = Train(model)
        x = flow.randn(8, 256, placement=where, sbp=S0)
        found = [graph(x).numpy()]
        graph.config.enable_auto_parallel(auto)
        graph.config.enable_auto_parallel_ignore_user_sbp_config(auto)
        return found + [graph(x).numpy() for _ in range(3)]

    assert_same_training(run(True), run(False))


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_stages(schedule, world):
    spec = pipelines.Spec(([0, 1], [2, 3], [[4, 5], [6, 7]]), (0, 1, 0), shortcut=True)
    changed = []

    def change(graph):
        graph.config.enable_auto_parallel()
        graph.config.enable_auto_parallel_ignore_user_sbp_config()
        changed.append(graph)

    _, wanted = pipelines.run(spec, schedule, 4)
    _, found = pipelines.run(spec, schedule, 4, change=change)
    assert pipelines.differ(found, wanted, exact=False) == []
    with pytest.raises(OnefoldRuntimeError, match="the graph has stages"):
        layouts_of(changed[0])


def test_boxings_in_build_are_chosen_too(world):
    def run(auto):
        where = flow.placement("cpu", [0, 1])

        def function(x):
            return flow.exp(flow.tanh(x).to_global(sbp=S1)).to_global(sbp=S0)

        graph = nn.Graph.trace(function)
        graph.config.enable_auto_parallel(auto)
        graph.config.enable_auto_parallel_ignore_user_sbp_config(auto)
        x = flow.ones(64, 64, placement=where, sbp=S0)
        return graph(x), [step.name for step in graph.program.steps]

    (wanted, asked), (found, chosen) = run(False), run(True)
    assert asked == ["tanh", "boxing", "exp", "boxing"] and chosen == ["tanh", "exp"]
    assert found.sbp == wanted.sbp
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())
