"""Modules whose activations wait in host memory: eager's bits, less memory on the device."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from block_training import LAYOUTS, Train, data, eager_training, graph_training, made
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.errors import OnefoldTypeError
from onefold.graph import host_copies
from onefold.graph.cuda_graphs import stream_capture
from onefold.graph.hardware import read
from onefold.graph.host_copies import FETCH, OFFLOAD, RELEASE, WAIT
from onefold.graph.passes import fuse_chains, offload_activations


@pytest.fixture(autouse=True)
def times(monkeypatch):
    """Every step takes a second, and every copy two: layers here are too small for real times."""
    monkeypatch.setattr(offload_activations, "seconds_of", lambda step: float(not step.aliases))
    monkeypatch.setattr(offload_activations, "copy_seconds", lambda meta: 2.0)


def offloading(module, mode=True):
    module.to(nn.graph.GraphModule).activation_offloading = mode
    return module


def origins(graph):
    kinds = (OFFLOAD, RELEASE, FETCH, WAIT)
    return [step.origin for step in graph.program.steps if step.origin in kinds]


def accumulating(model, count):
    graph = Train(model)
    graph.config.set_gradient_accumulation_steps(count)
    return graph


def trained(graph, inputs):
    flow.manual_seed(8)
    losses = [graph(x).numpy().tolist() for x in inputs]
    return losses, [t.numpy().tolist() for t in graph.model.parameters()]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_training_is_eagers_bit_for_bit(layout, world):
    where, of_input = LAYOUTS[layout]
    inputs = [data(of_input, number) for number in range(3)]
    graph = Train(offloading(made(where)))
    assert graph_training(graph, inputs) == eager_training(made(where), inputs)
    found = origins(graph)
    assert found.count(OFFLOAD) == found.count(FETCH) == found.count(WAIT) > 5


def test_processes_give_the_same_bits():
    def run():
        pair = flow.placement("cpu", [0, 1])  # of these processes
        where, of_input = ({**each, "placement": pair} for each in LAYOUTS["model-parallel"])

        def train(mode):
            graph = Train(offloading(made(where), mode))
            return graph_training(graph, [data(of_input, number) for number in range(2)])

        return train(False) == train(True)

    assert run_ranks(2, run) == [True, True]


def test_with_accumulation_and_checkpoints_in_other_modules(world):
    inputs = [data({}, number) for number in range(2)]
    plain = trained(accumulating(made(), 2), inputs)
    model = offloading(made())
    assert trained(accumulating(model, 2), inputs) == plain
    model = made()
    offloading(model.blocks[0])
    model.blocks[1].to(nn.graph.GraphModule).activation_checkpointing = True
    graph = accumulating(model, 2)
    assert trained(graph, inputs) == plain
    steps = graph.program.steps
    assert {step.scope.split(".")[2] for step in steps if step.origin == OFFLOAD} == {"0"}
    assert {step.micro_batch for step in steps if step.origin == FETCH} == {0, 1}


class Deep(nn.Module):
    """Matrix products alone: each keeps its input, whose transpose backward reads."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8, bias=False) for _ in range(12)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def deep(mode=True, rows=64):
    flow.manual_seed(4)
    graph = Train(offloading(Deep(), mode))
    flow.manual_seed(5)
    graph._compile(flow.randn(rows, 8))
    return graph


KEPT = 64 * 8 * 4  # bytes of one activation
AWAY = 10  # of the inputs of 12 layers: not the graph's, nor the last one's, which is needed soon


def test_the_plan_counts_the_host_apart_and_less_on_the_device():
    plain, graph = deep(False).memory(0), deep()
    plan = graph.memory(0)
    assert plain.host == 0
    assert "on the host" not in str(plain)
    assert plan.host == AWAY * KEPT
    assert f"on the host{AWAY * KEPT:>19,}  activations that wait for backward" in str(plan)
    # It is fullest where a weight's gradient is made, of a gradient that follows the next one.
    gradient, loss = 8 * 8 * 4, 4
    assert plain.live == (AWAY + 1 + 2) * KEPT + gradient + loss  # the last layer's gradient
    # Copies begin with the third layer, so that seven seconds of them are over in the tenth. That
    # has the outputs of the nine before it but three, and its own.
    assert plan.live == (9 - 7 // 2 + 1) * KEPT
    assert plan.moment.startswith("linear")
    assert plain.peak - plan.peak >= plain.live - plan.live - 1024  # each buffer is aligned


def test_the_plan_shows_the_copies():
    lines = deep().plan(0).splitlines()
    (offload,) = [line for line in lines if "= offload(%14)" in line]
    kept, form = offload.split(" = ")[0].split(": ")
    assert offload == f"{kept}: {form} = offload(%14)  # on the host"
    (release,) = [line for line in lines if f"= release({kept}, %14)" in line]
    away = release.split(":")[0]
    (fetch,) = [line for line in lines if f"= fetch({away})  # from the host" in line]
    fetched = fetch.split(":")[0]
    (wait,) = [line for line in lines if f"= wait({fetched})" in line]
    (read,) = [line for line in lines if f"{wait.split(':')[0]})" in line]
    assert "mm_tn(" in read
    places = [lines.index(line) for line in (offload, release, fetch, wait)]
    assert places == sorted(places) and places[-1] == lines.index(read) - 1


@pytest.mark.parametrize("module", [Deep, made])
def test_copies_are_waited_for_in_the_order_in_which_they_begin(module):
    """They go one after the other: a step that waits for the last one waits for all."""
    graph = Train(offloading(module()))
    graph(data({}, 0))
    numbers = {}
    for step in graph.program.steps:
        read = next(step.reads(), None)
        numbers.setdefault(step.origin, []).append((read and read.number, step.outputs))
    for begin, wait in ((OFFLOAD, RELEASE), (FETCH, WAIT)):
        begun = [outputs[0].number for _, outputs in numbers[begin]]
        assert len(begun) > 5 and begun == [read for read, _ in numbers[wait]]


def test_views_of_what_is_fetched_are_recomputed():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])

        def forward(self, x):
            for up in self.up:
                y = up(x)
                heads = y.reshape(-1, 2, 4).transpose(0, 1)
                first, second = y.chunk(2, 1)
                mixed = flow.matmul(heads, heads.transpose(1, 2)) @ heads
                x = mixed.transpose(0, 1).reshape(-1, 8) + flow.cat([second, first], 1) * y
                x = flow.tanh(x)
            return x

    inputs = [data({}, number) for number in range(2)]
    found = []
    for mode in (False, True):
        flow.manual_seed(3)
        graph = Train(offloading(Heads(), mode))
        found.append(graph_training(graph, inputs))
    assert found[0] == found[1]
    steps = graph.program.steps
    there = {step.outputs[0].number for step in steps if step.origin == WAIT}
    assert any(step.aliases and step.source.number in there for step in steps[len(steps) // 2 :])


def test_what_is_wanted_at_the_end_and_what_follows_from_parameters_stays():
    class Giving(Train):
        def build(self, x):
            first = self.model.layers[0](x)
            kept = flow.tanh(first)
            y = kept * flow.exp(self.model.layers[1].weight).sum()
            for layer in self.model.layers[2:]:
                y = layer(y)
            (y**2).mean().backward()
            return first

    flow.manual_seed(4)
    model = Deep()
    offloading(model.layers[0])
    graph = Giving(model)
    graph(data({}, 0))
    assert origins(graph) == []


class Wavy(nn.Module):
    """Begins with what is fused with the end of the layer before."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(flow.gelu(x)) + x


def test_of_a_step_for_two_modules_that_of_one_is_copied(monkeypatch):
    monkeypatch.setattr(fuse_chains, "uses_triton", lambda device_type: True)
    monkeypatch.setattr(offload_activations, "_SOON", 0)
    with flow.planning(1):
        model = nn.Sequential(*[Wavy() for _ in range(4)])
        offloading(model[1])
        graph = Train(model)
        graph._compile(flow.randn(64, 8))
    steps = graph.program.steps
    both = [step for step in steps if len(set(step.offloaded)) > 1]
    assert len(both) == 2  # with the layer before, and with the one behind
    copied = {step.source.number for step in steps if step.origin == OFFLOAD}
    for step in both:
        assert [value.number in copied for value in step.outputs] == list(step.offloaded)


PLAIN = replace(read("cpu"), launch=0.0, collective_launch=0.0, contention=1.0)


class Tasks:
    """The tasks of a simulation, by name."""

    def __init__(self, bandwidth):
        machine = replace(PLAIN, host_bandwidth=bandwidth)
        self.found = deep().simulate(machine, memory=False)
        self.time = self.found.step_time
        self.all = self.found.timeline.tasks

    def seconds(self, name):
        (seconds,) = {task.seconds for task in self.all if task.name == name}
        return seconds


def test_the_simulator_waits_for_slow_copies():
    copy = 1.0  # much longer than everything else
    tasks = Tasks(KEPT / copy)
    names = [task.name for task in tasks.all]
    assert names.count("offload") == names.count("fetch") == AWAY
    # The first copy begins behind two layers, each copy ends when the next begins, but for the
    # first steps of backward, which wait for all, and the last one is needed for the gradients of
    # the first two weights and the update.
    compute = 2 * tasks.seconds("linear") + tasks.seconds("mm") + 2 * tasks.seconds("mm_tn")
    compute += sum(task.seconds for task in tasks.all if task.name in ("spread_shares", "mul"))
    compute += tasks.seconds("learning_rate") + tasks.seconds("sgd")
    assert tasks.time == pytest.approx(compute + 2 * AWAY * copy, rel=1e-12)
    assert tasks.found.groups[0].communication == pytest.approx(2 * AWAY * copy)


def test_fast_copies_take_no_time_in_the_simulator():
    plain = deep(False).simulate(PLAIN, memory=False).step_time
    assert Tasks(float("inf")).time == pytest.approx(plain)
    assert Tasks(1e15).time == pytest.approx(plain)


def test_cuda_graphs_are_refused(monkeypatch):
    monkeypatch.setattr(stream_capture, "capturer", lambda kind: pytest.fail("captured"))
    graph = Train(offloading(made()))
    graph.config.enable_cuda_graph()
    graph(data({}, 0))
    assert (
        "copies between the device and its host overlap with the steps" in graph.cuda_graph_reason
    )
    assert f"# no CUDA graphs: {graph.cuda_graph_reason}" in graph.plan(0)


def test_what_has_no_data_is_planned(monkeypatch):
    monkeypatch.undo()  # with the constants of a GPU
    with flow.planning(1):
        plain, plan = (deep(mode, rows=2**20).memory(0) for mode in (False, True))
    assert plan.host > 0 and plan.live < plain.live


class RecordedStream:
    """Stands for a stream of a GPU: notes what is asked of it."""

    def __init__(self, log):
        self.log = log

    def __getattr__(self, name):
        return lambda *given: self.log.append(name)


def test_on_a_gpu_a_stream_of_copies_waits_and_is_waited_for(monkeypatch):
    log = []
    empty = torch.empty
    monkeypatch.setattr(host_copies, "_copy_stream", lambda device: RecordedStream(log))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: RecordedStream(log))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *given: log.append("record_stream"))
    monkeypatch.setattr(torch, "empty", lambda *shape, dtype, **where: empty(*shape, dtype=dtype))
    copy, device = host_copies._HostCopy(), SimpleNamespace(type="cuda")
    x = torch.arange(24.0).reshape(4, 6).t()[1:5]
    kept = copy._to_host(x, device)
    copy.release((kept,), (x,))
    there = copy._to_device(kept, device)
    copy.end((there,))
    assert torch.equal(there, x) and there.stride() == x.stride() and there is not x
    assert log == 2 * ["wait_stream", "record_event", "record_stream", "wait_event"]


def test_copies_of_several_micro_batches_are_waited_for_one_by_one(monkeypatch):
    waited = []
    stream = SimpleNamespace(
        wait_stream=lambda other: None, record_event=object, wait_event=waited.append
    )
    empty = torch.empty
    monkeypatch.setattr(host_copies, "_copy_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *given: None)
    monkeypatch.setattr(torch, "empty", lambda *shape, dtype, **where: empty(*shape, dtype=dtype))
    copy, device = host_copies._HostCopy(), SimpleNamespace(type="cuda")
    first, second = (copy._to_host(torch.full((2,), fill), device) for fill in (1.0, 2.0))
    events = [copy._copied[id(kept)][1] for kept in (first, second)]
    copy.release((second, second), (second, second))  # ranks that share memory
    copy.release((first,), (first,))
    assert waited == events[::-1]
    assert not copy._copied


def test_the_setting_counts_from_the_next_call():
    x = data({}, 0)
    graph = Train(made())
    found = []
    for mode in (False, True, False):
        offloading(graph.model, mode)
        graph(x)
        found.append(OFFLOAD in origins(graph))
    assert found == [False, True, False]
    assert "activation_offloading=True" not in str(graph)
    offloading(graph.model)
    assert "activation_checkpointing=False, activation_offloading=True))" in str(graph)


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_only_a_bool_is_taken(value):
    view = nn.Linear(2, 2).to(nn.graph.GraphModule)
    with pytest.raises(OnefoldTypeError, match="activation_offloading must be True or False"):
        view.activation_offloading = value
    assert view.activation_offloading is False
