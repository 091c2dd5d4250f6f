"""clip_grad_norm_ inside build(): what eager does, to all gradients of a call at its end."""

import math

import numpy as np
import pipelines
import pytest
from launched import run_ranks
from training_steps import compiled, lives

import onefold as flow
from onefold import nn
from onefold.errors import OnefoldRuntimeError
from onefold.graph.memory.memory_probe import Probe
from onefold.graph.memory.program_events import call_events
from onefold.graph.memory_traffic import local_bytes

B, S0 = flow.sbp.broadcast, flow.sbp.split(0)
CPU = {"placement": flow.placement("cpu", [0, 1])}
LAYOUTS = {
    "local": ({}, {}),
    "data": ({**CPU, "sbp": B}, {**CPU, "sbp": S0}),
    "model": ({**CPU, "sbp": S0}, {**CPU, "sbp": B}),
}


def model(layout):
    flow.manual_seed(3)
    where = LAYOUTS[layout][0]
    return nn.Sequential(nn.Linear(6, 8, **where), nn.Tanh(), nn.Linear(8, 4, **where))


def groups(of):
    """Two groups, of which one has a limit of its own."""
    first, last = of[0], of[2]
    return [
        {"params": list(first.parameters()), "lr": 0.5},
        {"params": list(last.parameters()), "clip_grad_max_norm": 0.2},
    ]


class Train(nn.Graph):
    def __init__(self, of, clip, optimizer, micro_batches=1, scaler=None):
        super().__init__()
        self.of, self.clip = of, clip
        self.add_optimizer(optimizer)
        self.config.set_gradient_accumulation_steps(micro_batches)
        if scaler is not None:
            self.set_grad_scaler(scaler)

    def build(self, x):
        loss = self.of(x).square().mean()
        loss.backward()
        return loss, self.clip(self.of)


def batch(layout, number):
    x = np.random.default_rng(number).standard_normal((8, 6)).astype(np.float32)
    return flow.tensor(x, **LAYOUTS[layout][1])


def whole(of, limit=0.05, norm_type=2.0):
    return nn.utils.clip_grad_norm_(of.parameters(), limit, norm_type)


def some(of):
    """Parts that overlap, one after the other."""
    first = nn.utils.clip_grad_norm_(of[0].parameters(), 0.02)
    second = nn.utils.clip_grad_norm_([of[0].weight, of[2].bias], 0.03, math.inf)
    return {"first": first, "second": [second]}


CLIPS = {
    "all": whole,
    "not reached": lambda of: whole(of, 1e9),
    "largest": lambda of: whole(of, 0.01, math.inf),
    "some": some,
    "none": lambda of: nn.utils.clip_grad_norm_([], 1.0),
}


def numbers(found):
    if isinstance(found, dict):
        return [found["first"].item(), found["second"][0].item()]
    return [found.item()]


def eager(of, clip, optimizer, x, micro_batches=1, last=None):
    for piece in x.chunk(micro_batches):
        (of(piece).square().mean() / micro_batches).backward()
    found = numbers(clip(of))
    optimizer.clip_grad()
    optimizer.step()
    optimizer.zero_grad()
    if last is not None:
        last.step()
        last.zero_grad()
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("name", CLIPS)
def test_as_eager(name, micro_batches, layout, world):
    one, other = model(layout), model(layout)
    graph = Train(one, CLIPS[name], flow.optim.SGD(groups(one), lr=0.1), micro_batches)
    optimizer = flow.optim.SGD(groups(other), lr=0.1)
    for number in range(3):
        x = batch(layout, number)
        loss, norm = graph(x)
        assert loss.shape == (() if micro_batches == 1 else (2,))
        expected = eager(other, CLIPS[name], optimizer, x, micro_batches)
        np.testing.assert_allclose(numbers(norm), expected, rtol=1e-5)
        for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("layout", ["local", "data"])
@pytest.mark.parametrize("name", ["all", "not reached", "some"])
def test_bit_by_bit(name, layout, world):
    """Over the groups of two optimizers."""
    found = []
    for in_graph in (True, False):
        of, clip = model(layout), CLIPS[name]
        first = flow.optim.AdamW(of[0].parameters())
        last = flow.optim.SGD([{"params": [param]} for param in of[2].parameters()], lr=0.1)
        graph = Train(of, clip, first)
        graph.add_optimizer(last)
        norms = []
        for number in range(3):
            x = batch(layout, number)
            if in_graph:
                norms.append(numbers(graph(x)[1]))
            else:
                norms.append(eager(of, clip, first, x, last=last))
        found.append([norms, *(param.numpy().tolist() for param in of.parameters())])
    assert found[0] == found[1]


@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.filterwarnings("ignore::onefold.PipelineWarning")
def test_stages_change_no_bit(micro_batches, world):
    class Clipped(pipelines.Train):
        def build(self, *inputs):
            found = super().build(*inputs)
            return found, whole(self.model, 0.01)

    spec = pipelines.Spec(((0,), (1,)), (0, 0))
    found = []
    for schedule in ("1f1b", None):
        flow.manual_seed(0)
        of = pipelines.Model(spec, staged=schedule is not None)
        graph = Clipped(of, micro_batches, schedule)
        norms = [graph(*pipelines.data(of, 4 * micro_batches))[1].item() for _ in range(3)]
        found.append([norms, *(param.numpy().tolist() for param in of.parameters())])
        if schedule is not None:
            assert all("clip_grad_norm_(" in graph.plan(rank) for rank in (0, 1))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["StaticGradScaler", "GradScaler"])
def test_the_norm_is_that_of_the_unscaled_gradients(kind, world):
    plain, scaled = model("local"), model("local")
    graphs = [
        Train(plain, whole, flow.optim.SGD(plain.parameters(), lr=0.1)),
        Train(
            scaled,
            whole,
            flow.optim.SGD(scaled.parameters(), lr=0.1),
            scaler=getattr(flow.amp, kind)(64.0),
        ),
    ]
    for number in range(3):
        (_, one), (_, other) = [graph(batch("local", number)) for graph in graphs]
        assert one.item() == pytest.approx(other.item(), rel=1e-6)
        for mine, theirs in zip(plain.parameters(), scaled.parameters(), strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-8)


def test_with_gradients_stored_split(world):
    one, other = model("data"), model("data")
    graph = Train(one, whole, flow.optim.AdamW(one.parameters()))
    graph.config.enable_zero(True, stage=2, shard_min_size=1)
    optimizer = flow.optim.AdamW(other.parameters())
    for number in range(3):
        x = batch("data", number)
        _, norm = graph(x)
        assert numbers(norm) == pytest.approx(eager(other, whole, optimizer, x), rel=1e-5)
        for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-7)


def test_a_norm_that_is_not_finite_changes_no_parameter(world):
    def clip(of):
        return nn.utils.clip_grad_norm_(of.parameters(), 1.0, error_if_nonfinite=True)

    of = model("local")
    graph = Train(of, clip, flow.optim.SGD(of.parameters(), lr=0.1))
    assert graph(batch("local", 0))[1].item() > 0
    before = [p.numpy().copy() for p in of.parameters()]
    with pytest.raises(OnefoldRuntimeError, match=r"total norm of order 2\.0.*cannot be clipped"):
        graph(batch("local", 1) * math.inf)
    for parameter, value in zip(of.parameters(), before, strict=True):
        np.testing.assert_array_equal(parameter.numpy(), value)
    assert graph(batch("local", 2))[1].item() > 0


def test_a_norm_that_is_not_finite_changes_no_scale_and_no_state(world):
    def clip(of):
        return nn.utils.clip_grad_norm_(of.parameters(), 1.0, error_if_nonfinite=True)

    of, scaler = model("local"), flow.amp.GradScaler(64.0, growth_interval=2)
    optimizer = flow.optim.AdamW(of.parameters())
    graph = Train(of, clip, optimizer, 2, scaler)
    graph(batch("local", 0))
    before = scaler.state_dict(), {k: np.array(v) for k, v in graph.state_dict()["of"].items()}
    steps = [int(entry["step"]) for entry in optimizer.state_dict()["state"].values()]
    for _ in range(2):
        with pytest.raises(OnefoldRuntimeError, match=r"norm.*written at .*test_clipping"):
            graph(batch("local", 1) * math.inf)
    assert scaler.state_dict() == before[0]
    for key, value in graph.state_dict()["of"].items():
        np.testing.assert_array_equal(np.array(value), before[1][key])
    assert [int(e["step"]) for e in optimizer.state_dict()["state"].values()] == steps == [1] * 4
    graph(batch("local", 2))
    assert scaler.get_scale() == 128.0


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_plan_and_memory_show_the_clipping(layout, micro_batches, world):
    ranks = [0] if layout == "local" else [0, 1]
    of = model(layout)
    graph = Train(of, whole, flow.optim.SGD(groups(of), lr=0.1), micro_batches)
    inputs = [batch(layout, 0)]
    probe = Probe(compiled(graph, inputs).executable, ranks)
    with flow.no_grad():
        kept = probe.run(inputs)
    del kept
    for rank in ranks:
        assert probe.peak(rank) == graph.memory(rank).live
        assert probe.live[rank] == lives(graph.program, rank)
        lines = graph.plan(rank).splitlines()
        (clipping,) = [i for i, line in enumerate(lines) if "clip_grad_norm_(" in line]
        assert "0.05, 2.0)" in lines[clipping]
        assert not any("clip_factor" in line or "sgd" in line for line in lines[:clipping])
        (event,) = [e for e in call_events(graph.program, rank) if e.label == "clip_grad_norm_"]
        gradients = sum(local_bytes(p.meta, rank) for p in of.parameters())
        assert sum(nbytes for _, nbytes in event.made) == gradients + 4


def test_what_cannot_be_as_in_eager_is_an_error(world):
    def computing(of):
        return whole(of) * 2

    def changing(of):
        norm = whole(of)
        of[0].weight.grad = of[0].weight.grad + 1
        return norm

    def untrained(of):
        return nn.utils.clip_grad_norm_([of[0].weight], 1.0)

    for clip, text in (
        (computing, r"norm that clip_grad_norm_ gives inside build\(\).*return it from build"),
        (changing, r"gradient of .*0.weight.* changed after clip_grad_norm_"),
    ):
        of = model("local")
        graph = Train(of, clip, flow.optim.SGD(of.parameters(), lr=0.1))
        with pytest.raises(OnefoldRuntimeError, match=text):
            graph(batch("local", 0))
    graph = nn.Graph.trace(lambda: nn.utils.clip_grad_norm_([], 1.0))
    with pytest.raises(OnefoldRuntimeError, match="no optimizer to use the gradients"):
        graph()
    of = model("local")
    graph = Train(of, untrained, flow.optim.SGD(of[2].parameters(), lr=0.1))
    with pytest.raises(OnefoldRuntimeError, match=r"0.weight.* no optimizer of the graph"):
        graph(batch("local", 0))


def test_a_norm_that_is_not_finite_is_an_error_of_every_rank():
    """Each raises it by itself, so that all go on alike."""

    def program():
        flow.manual_seed(3)
        places = [flow.placement("cpu", [0]), flow.placement("cpu", [1])]
        of = nn.Sequential(*[nn.Linear(4, 4).to_global(place, B) for place in places])

        def clip(of):
            return nn.utils.clip_grad_norm_(of.parameters(), 1.0, error_if_nonfinite=True)

        class Moving(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = of

            def forward(self, x):
                return of[1](of[0](x).to_global(places[1], B))

        graph = Train(Moving(), clip, flow.optim.SGD(of.parameters(), lr=0.1))
        x = flow.ones(4, 4, placement=places[0], sbp=B)
        said = []
        for _ in range(2):
            with pytest.raises(OnefoldRuntimeError) as caught:
                graph(x * math.inf)
            said.append((str(caught.value).splitlines()[0], caught.value.raised_on))
            norm = graph(x)[1].item()
            assert math.isfinite(norm)
        return said, norm

    first, second = run_ranks(2, program)
    assert first == second
    assert all("cannot be clipped" in text and rank is None for text, rank in first[0])


@pytest.mark.parametrize("size", [2, 4])
def test_stages_on_ranks_of_their_own(size):
    """The norm is that of all stages together, on every rank."""

    def program(staged):
        flow.manual_seed(3)
        half = flow.env.get_world_size() // 2
        places = [
            flow.placement("cpu", list(range(half))),
            flow.placement("cpu", list(range(half, 2 * half))),
        ]
        first = nn.Linear(6, 8).to_global(places[0], B)
        last = nn.Linear(8, 4).to_global(places[1], B)

        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = first, last

            def forward(self, x):
                y = self.first(x)
                return self.last(y if staged else y.to_global(places[1], B))

        of = Both()
        optimizer = flow.optim.SGD(of.parameters(), lr=0.5)
        x = flow.tensor(np.arange(48.0, dtype=np.float32).reshape(8, 6), placement=places[0], sbp=B)
        if staged:
            for stage, module in enumerate((first, last)):
                module.to(nn.graph.GraphModule).set_stage(stage, places[stage])
            _, norm = Train(of, whole, optimizer, 2)(x)
            found = numbers(norm)
        else:
            found = eager(of, whole, optimizer, x, 2)
        return found, [p.numpy() for p in of.parameters()]

    for staged, plain in zip(
        run_ranks(size, program, True), run_ranks(size, program, False), strict=True
    ):
        assert staged[0] == pytest.approx(plain[0], rel=1e-5)
        for mine, theirs in zip(staged[1], plain[1], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)
