"""Planning: clusters that do not exist, in which tensors have no data and graphs have plans."""

import copy
import pickle
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pipelines
import pytest
import torch

import onefold as flow
from onefold import nn
from onefold.distributed.world import seen_from, virtual_world, world as world_now
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError, PlacementError
from onefold.graph.hardware import read
from onefold.graph.hardware.hardware_text import as_toml
from onefold.graph.memory_traffic import local_bytes

pytestmark = pytest.mark.filterwarnings(
    "ignore::onefold.FallbackWarning", "ignore::onefold.PipelineWarning"
)

B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)


class Mlp(nn.Module):
    """Two layers, the weights of which are split over the last axis of a mesh."""

    def __init__(self, where, hidden):
        super().__init__()
        whole = (B,) * (where.ndim - 1)
        self.up = nn.Linear(8, hidden, placement=where, sbp=(*whole, S0))
        self.down = nn.Linear(hidden, 8, placement=where, sbp=(*whole, S1))
        self.norm = nn.LayerNorm(8, placement=where, sbp=(*whole, B))

    def forward(self, x):
        return self.norm(x + self.down(flow.gelu(self.up(x))))


class Train(nn.Graph):
    def __init__(self, model, micro_batches=1, zero=False):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.AdamW(model.parameters(), lr=1e-3))
        self.config.set_gradient_accumulation_steps(micro_batches)
        if zero:
            self.config.enable_zero(True, stage=2, shard_min_size=1)

    def build(self, x):
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        return loss


def meshed(mesh, hidden, **how):
    """A graph on one mesh, compiled."""
    flow.manual_seed(0)
    where = flow.placement("cpu", mesh)
    graph = Train(Mlp(where, hidden), **how)
    x = flow.randn(8 * where.shape[0], 8, placement=where, sbp=(S0, *(B,) * (where.ndim - 1)))
    graph._compile(x)
    return graph


def staged(spec, schedule):
    """A pipeline of tests/pipelines.py, compiled."""
    flow.manual_seed(0)
    model = pipelines.Model(spec, staged=True)
    graph = pipelines.Train(model, 4, schedule)
    graph._compile(*pipelines.data(model, 16))
    return graph


GRID = [[0, 1], [2, 3]]
CASES = {
    "tensor parallel": (4, lambda: meshed([0, 1, 2, 3], 16)),
    "uneven": (4, lambda: meshed([0, 1, 2, 3], 18)),
    "a mesh, micro-batches": (4, lambda: meshed(GRID, 16, micro_batches=2)),
    "ZeRO": (4, lambda: meshed(GRID, 16, zero=True)),
    "1f1b": (4, lambda: staged(pipelines.Spec(((0, 1), (2, 3)), (0, 1)), "1f1b")),
    "uneven stages": (5, lambda: staged(pipelines.Spec(((0, 1), (2, 3, 4)), (0, 1)), "zb-h1")),
    "a tied weight": (
        4,
        lambda: staged(pipelines.Spec(((0, 1), (2, 3)), (0, 0), tied=True, dropout=0.2), "gpipe"),
    ),
    "interleaved": (
        2,
        lambda: staged(pipelines.Spec(((0,), (1,), (0,), (1,)), (0,) * 4), "interleaved"),
    ),
}


def texts(graph, rank):
    """All that is said of a rank."""
    staged = graph._latest("test").stages is not None
    return graph.plan(rank), str(graph.memory(rank)), graph.schedule() if staged else ""


@pytest.mark.parametrize("name", CASES)
def test_plans_are_those_of_tensors_with_data(name):
    size, make = CASES[name]
    with flow.planning(size):
        graph = make()
        planned = [texts(graph, rank) for rank in range(size)]
    for rank in range(size):
        with seen_from(rank, size):
            assert texts(make(), rank) == planned[rank]
    with virtual_world(size):
        graph = make()
        plans = [(graph.plan(rank), texts(graph, rank)[2]) for rank in range(size)]
    assert plans == [(plan, schedule) for plan, _, schedule in planned]


def sent_in(graph, rank):
    """(bytes sent, bytes received) by the boxings of a call, from the plan's steps."""
    compiled = graph._latest("test")
    if compiled.stages is None:
        steps = Counter(dict.fromkeys(compiled.program.steps, 1))
    else:
        staged, count = compiled.stages.staged, compiled.stages.schedule.micro_batches
        steps = Counter(dict.fromkeys([*staged.once, *staged.end.program.steps], 1))
        inner = [step for its in staged.segments.values() for step in its]
        each = [*staged.feeds, *inner, *(transfer.step for transfer in staged.transfers)]
        steps += Counter(dict.fromkeys(each, count))
    moves = [(s, n) for s, n in steps.items() if s.name == "boxing" and s.outputs]
    plans = [(flow.engine.boxing.plan(s.source.meta, s.outputs[0].meta), n) for s, n in moves]
    return tuple(
        sum(getattr(plan, what)(rank) * n for plan, n in plans) for what in ("sent", "received")
    )


@pytest.mark.parametrize("name", CASES)
def test_the_summary_says_of_each_rank_what_it_does(name):
    size, make = CASES[name]
    with flow.planning(size):
        graph = make()
        summary = graph.summary()
        ranks = [rank for group in summary.groups for rank in group.ranks]
        assert sorted(ranks) == list(range(size))
        variables = [variable.value.meta for variable in graph.program.variables]
        for rank in range(size):
            group, memory = summary.group(rank), graph.memory(rank)
            found = group.persistent, group.inputs, group.live
            assert found == (memory.persistent, memory.inputs, memory.lower_bound)
            held = sum(local_bytes(meta, rank) // meta.dtype.itemsize for meta in variables)
            assert group.parameters == held
        for group in summary.groups:
            # Who owns one element more of an all-reduce sends more; the row has the most.
            each = [sent_in(graph, rank) for rank in group.ranks]
            most = max(sent for sent, _ in each), max(received for _, received in each)
            assert group.sent >= most[0] and group.received >= most[1]
            assert group.sent <= 1.5 * most[0] and group.received <= 1.5 * most[1]
        assert len(str(summary).splitlines()) == 1 + len(summary.groups)


def test_few_rows_stand_for_many_ranks():
    with flow.planning(4096) as cluster:
        first, second = (where for where in cluster.meshes(64, 32, type="cpu"))
        graph = meshed(first.ranks, 64)
        # A bias counts once among the addends, on the first rank of each row of the mesh.
        assert [len(group.ranks) for group in graph.summary().groups] == [64, 1984]
        uneven = meshed(second.ranks, 66)
        assert [len(group.ranks) for group in uneven.summary().groups] == [64, 64, 1920]


class Gpt(nn.Module):
    """Blocks with the parameters of a GPT, each on its stage."""

    def __init__(self, layers, width, vocabulary, stages):
        super().__init__()
        first, last = stages[0], stages[-1]

        def linear(inputs, outputs, where):
            columns = S0 if inputs <= outputs else S1
            return nn.Linear(inputs, outputs, placement=where, sbp=(B, columns))

        def block(where):
            norms = [nn.LayerNorm(width, placement=where, sbp=(B, B)) for _ in range(2)]
            four = [linear(width, width, where) for _ in range(4)]
            return nn.ModuleList(
                [*norms, *four, linear(width, 4 * width, where), linear(4 * width, width, where)]
            )

        self.tokens = nn.Embedding(vocabulary, width, placement=first, sbp=(B, S0))
        self.blocks = nn.ModuleList(
            block(stages[layer * len(stages) // layers]) for layer in range(layers)
        )
        self.head = linear(width, vocabulary, last)


def held_megabytes():
    """The memory of this process now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def test_a_trillion_parameters_take_no_memory():
    before = held_megabytes()
    with flow.planning(4096) as cluster:
        model = Gpt(128, 25600, 51200, cluster.meshes(8, 8)).bfloat16()
        optimizer = flow.optim.AdamW(model.parameters(), lr=1e-4)
        inputs = flow.randint(
            0, 51200, (2**20, 2048), placement=cluster.meshes(8, 8)[0], sbp=(S0, B)
        )
        local = nn.Linear(10**6, 10**6, device="cuda")
        assert sum(p.numel() for p in model.parameters()) > 1_000_000_000_000
        assert optimizer.param_groups[0]["params"][0].dtype is flow.bfloat16
        assert inputs.shape == (2**20, 2048) and local.weight.is_meta
    assert held_megabytes() - before < 300


# The formulas: 12 L h^2 (1 + 13 / 12 h) parameters of L layers; 4 bytes each, gradients the same,
# AdamW twice; with ZeRO the states (stage 1) and gradients are one of d parts.


@pytest.mark.parametrize("zero", [False, True])
def test_parameters_gradients_and_states_are_those_of_the_formulas(zero):
    data, layers, width = 4, 3, 16
    with flow.planning(data):
        where = flow.placement("cpu", range(data))

        def linear(inputs, outputs):
            return nn.Linear(inputs, outputs, placement=where, sbp=B)

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.norms = nn.ModuleList(
                    nn.LayerNorm(width, placement=where, sbp=B) for _ in range(2)
                )
                self.attention = nn.ModuleList(linear(width, width) for _ in range(4))
                self.up, self.down = linear(width, 4 * width), linear(4 * width, width)

            def forward(self, x):
                q, k, v, out = self.attention
                h = self.norms[0](x)
                h = nn.functional.scaled_dot_product_attention(q(h), k(h), v(h))
                x = x + out(h)
                return x + self.down(flow.gelu(self.up(self.norms[1](x))))

        graph = Train(nn.Sequential(*[Block() for _ in range(layers)]), zero=zero)
        graph(flow.randn(8, 4, width, placement=where, sbp=S0))
        memory, summary = graph.memory(0), graph.summary()
        gradients = sum(local_bytes(value.meta, 0) for _, value in graph.program.gradients)
    count = 12 * layers * width**2 + 13 * layers * width
    assert summary.groups[0].parameters == count
    parts = data if zero else 1
    assert memory.persistent == 4 * count + 8 * count // parts
    assert memory.states == 8 * count // parts
    assert gradients == 4 * count // parts


# Values.


def planned_tensor():
    return flow.ones(4, 4, placement=flow.placement("cuda", range(4)), sbp=S0, requires_grad=True)


READS = {
    "item": lambda x: x.sum().item(),
    "numpy": lambda x: x.numpy(),
    "tolist": lambda x: x.tolist(),
    "to_torch": lambda x: x.to_torch(),
    "float": lambda x: float(x.sum()),
    "int": lambda x: int(x.sum()),
    "bool": lambda x: bool(x.sum() > 0),
    "if": lambda x: 1 if (x > 0).all() else 2,
    "format": lambda x: f"{x.sum():.3f}",
    "nonzero": lambda x: x.nonzero(),
    "numpy of a local one": lambda x: flow.ones(3).numpy(),
    "torch of a local one": lambda x: flow.ones(3).to_torch(),
    "array": lambda x: torch.tensor(x.detach().__array__()),
    "save": lambda x: flow.save(x, BytesIO(), global_dst_rank=0),
    "save a local one": lambda x: flow.save({"x": flow.ones(3)}, BytesIO()),
    "checkpoint": lambda x: flow.checkpoint.save("never", {"x": x}, 1),
}


@pytest.mark.parametrize("name", READS)
def test_values_are_not_read_while_planning(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with flow.planning(4):
        x = planned_tensor()
        with pytest.raises(OnefoldRuntimeError, match=r"flow\.planning"):
            READS[name](x)
    assert not list(tmp_path.iterdir())
    with pytest.raises(OnefoldRuntimeError, match=r"flow\.planning"):
        x.numpy()  # nor afterwards
    with flow.planning(4), pytest.raises(OnefoldTypeError, match="not pickled"):
        pickle.dumps(planned_tensor())


def test_a_tensor_shows_its_size_in_place_of_its_value():
    with flow.planning(2):
        x = flow.ones(2, 3, placement=flow.placement("cuda", [0, 1]), sbp=S0)
        assert repr(x) == (
            'tensor(..., size=(2, 3), placement=onefold.placement(type="cuda", ranks=[0, 1]), '
            "sbp=(onefold.sbp.split(dim=0),))"
        )
        assert f"{x}" == str(x) == repr(x)
        assert repr(flow.ones(2)) == repr(torch.ones(2, device="meta"))
        assert f"{x.sum()}".startswith("tensor(..., size=()")
        assert x.is_meta and x.is_cuda


def test_eager_code_runs_without_data():
    with flow.planning(64) as cluster:
        (where,) = cluster.meshes(8, 8, type="cpu")
        model = Mlp(where, 64)
        x = flow.randn(8, 8, placement=where, sbp=(S0, B))
        optimizer = flow.optim.AdamW(model.parameters(), lr=1e-3)
        with flow.profiler.comm() as log:
            loss = (model(x) ** 2).mean()
        loss.backward()
        assert model.up.weight.grad.shape == (64, 8)
        optimizer.step()
        assert log.count() > 0
        assert copy.deepcopy(model).down.weight.sbp == (B, S1)
        model.load_state_dict({k: torch.zeros(v.shape) for k, v in model.state_dict().items()})
        assert model.up.weight.to_local().shape == (8, 8)
        assert x[1:3].t().sbp == (B, B) or x[1:3].t().shape == (8, 2)
        for make in (nn.init.orthogonal_, nn.init.kaiming_uniform_, nn.init.eye_):
            make(model.up.weight)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("while_planning", [False, True])
def test_gradients_without_data_are_clipped_and_taken(momentum, while_planning):
    with flow.planning(4) if while_planning else nullcontext():
        where = flow.placement("cpu", GRID)
        model = nn.Linear(8, 8, device="meta").to_global(where, (B, B))
        optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
        x = flow.empty(8, 8, device="meta").to_global(where, (B, B)).to_global(sbp=(S0, B))
        for _ in range(2):
            (model(x) ** 2).mean().backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            assert norm.shape == () and norm.is_meta
            optimizer.step()
            optimizer.zero_grad()
        kept = [state["momentum_buffer"] for state in optimizer.state.values()] if momentum else []
        assert [each.shape for each in kept] == [(8, 8), (8,)][: len(kept)]
        assert model.weight.is_meta and len(kept) == 2 * bool(momentum)


def test_a_call_of_a_graph_compiles_it():
    with flow.planning(4):
        where = flow.placement("cpu", GRID)
        graph = Train(Mlp(where, 16))
        loss = graph(flow.randn(8, 8, placement=where, sbp=(S0, B)))
        assert loss.shape == () and loss.placement is where
        assert "linear" in graph.plan(3)
        assert graph.memory(3).total > 0


def draw_and_fail():
    with flow.planning(8):
        flow.randn(3)
        flow.nn.Linear(3, 3)
        raise ZeroDivisionError


def test_all_is_as_before_afterwards():
    flow.manual_seed(3)
    with virtual_world(2) as outside:
        where = flow.placement("cpu", [0, 1])
        x = flow.ones(4, placement=where, sbp=S0)
        state = flow.get_rng_state()
        with pytest.raises(ZeroDivisionError):
            draw_and_fail()
        assert world_now() is outside
        assert flow.get_rng_state() == state
        assert flow.placement("cpu", [0, 1]) is where
        assert (x + 1).tolist() == [2.0] * 4
        assert flow.ones(2).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: flow.planning(0), OnefoldValueError, "at least 1"),
        (lambda: flow.planning("many"), OnefoldTypeError, "size must be an integer"),
        (lambda: flow.planning(True), OnefoldTypeError, "size must be an integer"),
        (lambda: flow.planning(4, 5), OnefoldTypeError, "name of a machine type"),
    ],
)
def test_no_cluster(call, error, says):
    with pytest.raises(error, match=says), call():
        pass


@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_of_a_user_is_taken_by_its_path(kind, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(as_toml(replace(read("h100"), name="mine")))
    with flow.planning(4, hardware=kind(path)) as cluster:
        where = flow.placement("cuda", range(4))
        graph = nn.Graph.trace(lambda x: x.sum())
        graph(flow.ones(8, 4, placement=where, sbp=S0))
        assert graph.simulate().hardware.name == "mine"
        assert cluster.hardware == kind(path)
        graph.report(tmp_path / "plan.html")


def test_meshes_that_do_not_fit():
    with flow.planning(4096) as cluster:
        with pytest.raises(PlacementError, match=r"4,096 ranks cannot be divided .* 3 x 8 ranks"):
            cluster.meshes(3, 8)
        with pytest.raises(PlacementError, match="integers of at least 1"):
            cluster.meshes()
        with pytest.raises(PlacementError, match="integers of at least 1"):
            cluster.meshes(0, 8)
        with pytest.raises(PlacementError, match=r"include 4999, but flow.planning\(size=4096\)"):
            flow.placement("cuda", range(5000))
        with pytest.raises(OnefoldValueError, match="rank 4097 is in none"):
            meshed([0, 1], 8).memory(4097)


def test_there_is_nobody_to_talk_to():
    with flow.planning(4):
        x = flow.ones(2, 2).to_global(flow.placement("cpu", range(4)), S0)
        assert x.shape == (8, 2)
        with pytest.raises(OnefoldRuntimeError, match="no rank holds"):
            flow.comm.all_reduce(flow.ones(2))
