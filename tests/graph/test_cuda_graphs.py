"""Steps as CUDA graphs, on the CPU: what is captured, what is not, and that no bit changes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from captured_steps import Noisy, Train, batches, of, trained
from launched import run_ranks
from recorded_ops import recording

import onefold as flow
from onefold import nn, sbp
from onefold.graph.cuda_graphs.captured_calls import CapturedCalls
from onefold.graph.cuda_graphs.segments import RULES, Where, reason, segments_of, summary

B, S0 = sbp.broadcast, sbp.split(0)
PAIR = flow.placement("cpu", [0, 1])
NORM = torch.get_float32_matmul_precision


@pytest.fixture
def recorder(monkeypatch):
    recorder = recording(monkeypatch)
    yield recorder
    assert recorder.faults == []


def assert_equal(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"parts": 3},
        {"in_backward": True},
        {"in_backward": True, "parts": 2},
        {"clip": 0.1},
        {"scaler": lambda: flow.amp.GradScaler(init_scale=64.0, growth_interval=2)},
        {"parts": 2, "clip": 0.1, "scaler": lambda: flow.amp.StaticGradScaler(8.0)},
        {"returns": lambda graph, x: x.t()},
        {"returns": lambda graph, x: graph.model.calls.detach()},
        {"returns": lambda graph, x: graph.model.up.weight},
        {"returns": lambda graph, x: graph.model.up.weight.grad},
        {"in_backward": True, "returns": lambda graph, x: x[1:]},
        {"in_backward": True, "returns": lambda graph, x: flow.rand(2, **of(x)) * x[0, :2]},
    ],
    ids=[
        "plain",
        "micro-batches",
        "in backward",
        "both",
        "clipped",
        "scaled",
        "all",
        "an input",
        "a buffer",
        "a weight",
        "a gradient",
        "an input, in backward",
        "a draw, in backward",
    ],
)
@pytest.mark.parametrize("layout", ["local", "split"])
def test_no_bit_changes(options, layout, recorder, world):
    place = {"placement": PAIR, "sbp": B} if layout == "split" else {}
    data = {"placement": PAIR, "sbp": S0} if layout == "split" else {}

    def run(cuda_graph):
        scaler = {"scaler": options["scaler"]()} if "scaler" in options else {}
        graph = Train(cuda_graph=cuda_graph, **{**options, **scaler}, **place)
        return trained(graph, batches(6, **data)), graph

    (wanted, _), (found, graph) = run(False), run(True)
    assert_equal(found, wanted)
    assert (recorder.captures >= 1, recorder.replays) == (True, 4 * recorder.captures)
    assert graph.cuda_graph_reason == ""


class Drawing(nn.Module):
    """Multiplies by what it draws, which a checkpoint draws again."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x * flow.rand(4)).relu() * flow.rand(4)


def test_a_checkpoint_draws_again_after_the_first_update(recorder):
    class Step(nn.Graph):
        def __init__(self, cuda_graph):
            super().__init__()
            flow.manual_seed(3)
            self.first, self.second = Drawing(), Drawing()
            self.first.to(nn.graph.GraphModule).activation_checkpointing = True
            parameters = [*self.first.parameters(), *self.second.parameters()]
            self.add_optimizer(flow.optim.SGD(parameters, lr=0.1))
            self.config.enable_cuda_graph(cuda_graph)
            self.config.enable_optimizer_in_backward()

        def build(self, x):
            loss = self.second(self.first(x)).square().mean()
            loss.backward()
            return loss

    def run(cuda_graph):
        graph = Step(cuda_graph)
        losses = [graph(x) for x in batches(7)]
        return [y.numpy() for y in (*losses, *graph.first.parameters())]

    assert_equal(run(True), run(False))
    assert recorder.replays == 5 * recorder.captures == 10


@pytest.mark.parametrize("name", ["AdamW", "LAMB"])
@pytest.mark.parametrize("in_backward", [False, True])
def test_a_buffer_keeps_an_input_of_the_last_call(name, in_backward, recorder):
    """Its memory is not that from which the next call reads its input."""

    class Last(nn.Graph):
        def __init__(self, cuda_graph):
            super().__init__()
            flow.manual_seed(3)
            self.layer = nn.Linear(4, 4)
            self.layer.register_buffer("last", flow.zeros(4, 4))
            self.add_optimizer(getattr(flow.optim, name)(self.layer.parameters(), lr=0.1))
            self.config.enable_cuda_graph(cuda_graph)
            self.config.enable_optimizer_in_backward(in_backward)

        def build(self, x):
            difference = (self.layer.last - x).square().mean()
            self.layer(x).square().mean().backward()
            self.layer.last.copy_(x.t())
            return difference

    def run(cuda_graph):
        graph = Last(cuda_graph)
        return [graph(x) for x in batches(7, rows=4)]

    assert_equal(*([y.numpy() for y in run(on)] for on in (True, False)))


SETTINGS = {
    "zero 1": lambda graph: graph.config.enable_zero(stage=1, shard_min_size=1),
    "zero 2": lambda graph: graph.config.enable_zero(stage=2, shard_min_size=1),
    "zero 3": lambda graph: graph.config.enable_zero(stage=3, shard_min_size=1),
    "amp": lambda graph: graph.config.enable_amp(dtype=flow.bfloat16),
    "layouts": lambda graph: graph.config.enable_layout_search(),
    "checkpoint": lambda graph: setattr(
        graph.model.to(nn.graph.GraphModule), "activation_checkpointing", True
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_no_bit_changes_with_other_settings(name, recorder, world):
    def run(cuda_graph):
        graph = Train(cuda_graph=cuda_graph, parts=2, placement=PAIR, sbp=B)
        SETTINGS[name](graph)
        found = trained(graph, batches(6, rows=8, placement=PAIR, sbp=S0))
        return found, graph.cuda_graph_reason

    (wanted, _), (found, text) = run(False), run(True)
    assert_equal(found, wanted)
    assert (text, recorder.replays) == ("", 4 * recorder.captures)


def two_ranks():
    """Losses without and with CUDA graphs, what runs between them, and how often they run.

    In the fourth step a parameter moves on rank 0 alone.
    """
    recorder = recording(pytest.MonkeyPatch())
    everyone = flow.placement("cpu", [0, 1])
    found = []
    for cuda_graph in (False, True):
        scaler = flow.amp.GradScaler(init_scale=64.0, growth_interval=2)
        options = {"parts": 2, "clip": 0.1, "scaler": scaler}
        graph = Train(cuda_graph=cuda_graph, **options, placement=everyone, sbp=B)
        flow.manual_seed(11)
        given = batches(8, rows=8, placement=everyone, sbp=S0)
        losses = [graph(x).numpy().tolist() for x in given[:4]]
        weight = graph.model.up.weight
        if flow.env.get_rank() == 0:
            weight.shards = tuple([x.clone() for x in weight.shards])
        found.append(losses + [graph(x).numpy().tolist() for x in given[4:]])
    plan = [line for line in graph.plan(0).splitlines() if line.startswith("# ")]
    return *found, plan, (recorder.captures, recorder.replays), graph.cuda_graph_reason


def test_processes_communicate_between_their_graphs():
    results = run_ranks(2, two_ranks, env={"ONEFOLD_CHECK": "1"})
    for wanted, found, plan, (captures, _), text in results:
        assert (found, text) == (wanted, "")
        assert captures > 2
        assert sum("communicates with other processes" in line for line in plan) > 2
    (*_, (first, some), _), (*_, (second, more), _) = results
    assert (first, some, more) == (2 * second, 5 * second, 6 * second)


def test_results_of_earlier_calls_stay(recorder):
    graph = Train(returns=lambda graph, x: graph.model.up(x))
    kept = [graph(x)[1] for x in batches(5)]
    values = [x.numpy().copy() for x in kept]
    graph(batches(1)[0])
    assert_equal([x.numpy() for x in kept], values)


# What is noticed.


def reasons(graph, given):
    found = []
    for x in given:
        graph(x)
        found.append(graph.cuda_graph_reason[:9])
    return found


FIRST, WARM = "the first", "the kerne"
EAGER = "the update runs without a CUDA graph: "


def test_the_order_of_calls(recorder):
    graph = Train()
    assert reasons(graph, batches(4)) == [FIRST, WARM, "", ""]
    assert (recorder.captures, recorder.replays) == (2, 4)  # one of them is the update


CHANGES = ["parameter", "buffer", "strides", "precision", "state", "lr", "eager"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(change, recorder, monkeypatch):
    """What moved is captured again; what is a value of memory or of the host's is not."""

    def run(cuda_graph):
        graph = Train(cuda_graph=cuda_graph)
        flow.manual_seed(11)
        found = [graph(x).numpy() for x in batches(4)]
        x = batches(1)[0]
        if change == "parameter":
            graph.model.up.weight.data = graph.model.up.weight.data * 2
        elif change == "buffer":  # in the same memory
            mixing = graph.model.mixing
            at = mixing.shards[0].data_ptr()
            mixing.data = mixing.data.t()
            assert mixing.shards[0].data_ptr() == at
        elif change == "strides":
            x = flow.from_torch(torch.from_numpy(x.numpy()).t().contiguous().t())
        elif change == "precision":
            monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: f"{cuda_graph}")
        elif change == "state":
            graph.load_state_dict(Train(cuda_graph=False).state_dict())
        elif change == "lr":
            graph._optimizers[0][0].param_groups[0]["lr"] = 0.5
        else:
            with flow.no_grad():
                graph.model.up.weight.mul_(2)
        found += trained(graph, [x] * 3)
        monkeypatch.setattr(torch, "get_float32_matmul_precision", NORM)
        return found

    wanted = run(False)
    assert recorder.captures == 0
    assert_equal(run(True), wanted)
    assert recorder.captures == (2 if change in ("lr", "eager") else 4)


@pytest.mark.parametrize("every", [1, 3])
def test_parameters_that_move_again_and_again(every, recorder):
    """As `state_dict()` makes them: the next update writes them into other memory."""

    def run(cuda_graph):
        graph = Train(cuda_graph=cuda_graph)
        flow.manual_seed(11)
        found, kept = [], []
        for number, x in enumerate(batches(12)):
            found.append(graph(x).numpy())
            if number % every == 0:
                kept.append(graph.state_dict())
        return found + [x.numpy() for x in graph.model.state_dict().values()], graph

    (wanted, _), (found, graph) = run(False), run(True)
    assert_equal(found, wanted)
    if every == 1:  # then they are copied
        assert recorder.captures == 1
        assert graph.cuda_graph_reason == EAGER + (
            "a parameter of the update gets other memory in each call"
        )
    else:
        assert recorder.captures == 8


def test_another_shape_is_captured_for_itself(recorder):
    graph = Train()
    small, large = batches(4), batches(4, rows=9)
    assert reasons(graph, small) == reasons(graph, large) == [FIRST, WARM, "", ""]
    assert reasons(graph, small[:1]) == [""]
    assert recorder.captures == 4


def test_what_looks_at_calls_sees_each_of_them(recorder):
    graph = Train()
    given = batches(5)
    reasons(graph, given[:4])
    before = recorder.replays
    with flow.profiler.profile() as found:
        graph(given[4])
    assert recorder.replays == before
    assert graph.cuda_graph_reason == "something looks at each step, such as a profile"
    assert len(found.events()) > 10


def test_a_capture_that_fails(recorder, monkeypatch):
    def failing(function, static):
        try:
            raise flow.errors.OnefoldRuntimeError("linear of model.up: not permitted")
        except flow.errors.OnefoldRuntimeError:  # as the end of CUDA's captures does
            raise RuntimeError("failed due to a previous error during capture")  # noqa: B904

    wanted = trained(Train(cuda_graph=False), batches(6))
    monkeypatch.setattr(recorder, "capture", failing)
    graph = Train()
    assert_equal(trained(graph, batches(6)), wanted)
    assert graph.cuda_graph_reason == "the capture failed: linear of model.up: not permitted"
    assert graph.plan(0).endswith(f"\n# no CUDA graphs: {graph.cuda_graph_reason}")


# What is captured.


def test_it_is_off_unless_asked_for(recorder):
    graph = Train(cuda_graph=False)
    assert reasons(graph, batches(3)) == ["config.en"] * 3
    assert "cuda_graph" not in repr(graph.config)
    assert "cuda_graph=True" in repr(Train().config)
    with pytest.raises(flow.errors.OnefoldTypeError, match="True or False"):
        graph.config.enable_cuda_graph(1)


def test_tensors_of_the_cpu_are_not_captured():
    graph = Train()
    graph(batches(1)[0])
    assert graph.plan(0).endswith(f"\n# no CUDA graphs: {graph.cuda_graph_reason}")
    assert graph.cuda_graph_reason == (
        "CUDA graphs need a GPU of NVIDIA's, and the tensors are on cpu"
    )


def test_ranks_on_several_devices_are_not_captured(recorder, monkeypatch):
    several = {torch.device("cpu", 0), torch.device("cpu", 1)}
    monkeypatch.setattr(CapturedCalls, "_devices", lambda self, places: several)
    graph = Train()
    for x in batches(3):
        graph(x)
    wanted = "the ranks of this process are on several devices: cpu:0, cpu:1"
    assert (recorder.captures, graph.cuda_graph_reason) == (0, wanted)


def test_a_graph_with_stages_is_not_captured(recorder, world):
    graph = Train(placement=PAIR, sbp=B)
    graph.model.to(nn.graph.GraphModule).set_stage(0, PAIR)
    graph(batches(1, placement=PAIR, sbp=B)[0])
    assert graph.cuda_graph_reason == "the graph has stages, whose order of work is the host's"


def test_the_plan_shows_what_runs_between(recorder):
    graph = Train(clip=0.1)
    graph(batches(1)[0])
    *_, captured, update = graph.plan(0).splitlines()
    assert captured.startswith("# CUDA graph: ") and captured.endswith(" to clip_factor")
    assert update == "# CUDA graph: 1 steps, adamw to adamw"


def program(build, *given):
    graph = nn.Graph.trace(build)
    graph._compile(*given)
    return graph.program.steps


def test_communication_is_not_captured(world):
    x = flow.ones(4, 4, placement=PAIR, sbp=S0)
    steps = program(lambda x: flow.relu(flow.relu(x).to_global(sbp=B)), x)
    kinds = [segment.captured for segment in segments_of(steps, Where("cpu"))]
    assert kinds == [True]
    there = segments_of(steps, Where("cpu", launched=True))
    assert [segment.captured for segment in there] == [True, False, True]
    assert summary(steps, there).splitlines() == [
        "# CUDA graph: 1 steps, relu to relu",
        "# between: boxing: communicates with other processes: "
        "config.enable_cuda_graph(communication=True) captures collectives of NCCL",
        "# CUDA graph: 1 steps, relu to relu",
    ]


def test_each_reason():
    x = flow.ones(4, 4)
    (dropped,) = program(lambda x: nn.functional.dropout(x, 0.5), x)
    assert reason(dropped, Where("cpu")) == ""
    assert reason(dropped, Where("cpu", draws_in_memory=False)) == RULES[1][1]
    assert reason(dropped, Where("cuda")) == RULES[2][1]
    unknown = replace(dropped, op=None)
    assert reason(unknown, Where("cpu")) == RULES[1][1]
    assert reason(replace(dropped, host="waits"), Where("cpu")) == "waits"


def test_gradients_that_are_put_together_are_captured(world):
    graph = Train(placement=PAIR, sbp=B)
    graph._compile(batches(1, placement=PAIR, sbp=S0)[0])
    (flat,) = [step for step in graph.program.steps if step.name == "flatten_gradients"]
    assert reason(flat, Where("cpu")) == ""


# Functions.


@pytest.mark.parametrize("options", [{"mode": "reduce-overhead"}, {"backend": "cudagraphs"}])
def test_compiled_functions(options, recorder):
    def run(**options):
        flow.manual_seed(5)
        model = Noisy()
        called = flow.compile(model, **options)
        optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
        found = []
        for x in batches(6):
            loss = called(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.numpy())
        return found + [x.numpy() for x in model.state_dict().values()], called

    wanted, plain = run()
    assert recorder.captures == 0
    assert plain._compiled.cuda_graph_reason.startswith("config.enable_cuda_graph")
    found, called = run(**options)
    assert_equal(found, wanted)
    assert called._compiled.cuda_graph_reason == ""
    # Forward and backward; one call more finds that statistics move.
    assert (recorder.captures, recorder.replays) == (2, 7)
