"""The simulator: closed forms of schedules and collectives, real graphs, and monotonicity."""

import json
from collections import Counter
from dataclasses import replace

import pipelines
import pytest
import torch
from hypothesis import given, settings, strategies as st
from trace_faults import faults

import onefold as flow
from onefold import nn
from onefold.distributed.world import seen_from
from onefold.engine import boxing
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from onefold.graph.hardware import Curve, Hardware, Link, read
from onefold.graph.hardware.collective_cost import all_gather, all_reduce, span
from onefold.graph.schedules.actions import Action, needs
from onefold.graph.schedules.named_schedules import make
from onefold.graph.schedules.schedule_check import bubble
from onefold.graph.schedules.simulate import Times, simulate
from onefold.graph.simulator.event_simulation import Task, run
from onefold.graph.step_products import products_of

B, P, S0, S1 = flow.sbp.broadcast, flow.sbp.partial_sum, flow.sbp.split(0), flow.sbp.split(1)
FULL = Curve(((1.0, 1.0),))
LINK = Link("wire", float("inf"), 1e-5, 1e-6, 1e9, ("ring",), FULL)
PLAIN = Hardware(
    "test", {torch.float32: 1e10}, 1 << 40, 1e9, 0.0, False, 1.0, FULL, FULL, FULL, (LINK,)
)


# The core.


def tasks_of(schedule, times):
    """The actions and messages of a schedule as tasks."""
    numbers, count = {}, 0
    for actions in schedule.ranks:
        for action in actions:
            numbers[action] = count
            count += 2  # the action, and the message that it sends
    tasks = []
    for rank, actions in enumerate(schedule.ranks):
        for action in actions:
            before = []
            for each in needs(action, schedule.stages):
                far = schedule.rank_of[each.stage] != rank
                found = each
                if each not in numbers:  # a B stands for I and W
                    found = next(a for a in numbers if a == each)
                before.append(numbers[found] + far)
            tasks.append(Task(str(action), rank, "compute", times.of(action), tuple(before)))
            number = numbers[action]
            tasks.append(Task("send", rank, "communication", times.transfer, (number,)))
    return tasks


def bubble_of(schedule, times):
    timeline = run(tasks_of(schedule, times))
    work = max(sum(map(times.of, actions)) for actions in schedule.ranks)
    spans = []
    for rank in range(len(schedule.ranks)):
        own = [
            (timeline.starts[i], timeline.ends[i])
            for i, task in enumerate(timeline.tasks)
            if task.rank == rank and task.stream == "compute"
        ]
        spans.append(own[-1][1] - own[0][0])
    return max(spans) - work


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2"])
@pytest.mark.parametrize("ranks", [1, 2, 4, 7])
def test_closed_forms_of_bubbles(name, ranks):
    times = Times(3, 3, 3)
    for m in (ranks, 2 * ranks, 4 * ranks):
        chunks = 2 if name == "interleaved" else 1
        schedule = make(name, ranks * chunks, m, ranks)
        wanted = bubble(schedule, times)
        if wanted is not None:
            assert bubble_of(schedule, times) == wanted  # exact, in whole numbers


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"])
@given(st.integers(1, 5), st.integers(1, 9), st.lists(st.integers(1, 9), min_size=3, max_size=3))
def test_the_same_as_the_schedules_own_simulation(name, ranks, m, drawn):
    """With transfers that are not longer than an action, so that none waits for another."""
    schedule = make(name, ranks * (2 if name in ("interleaved", "zb-v") else 1), m, ranks)
    for transfer in (0, min(drawn)):
        times = Times(*drawn, transfer=transfer)
        found, wanted = run(tasks_of(schedule, times)), simulate(schedule, times)
        ends = {task.name: end for task, end in zip(found.tasks, found.ends, strict=True)}
        assert all(ends[str(action)] == end for action, (_, end) in wanted.spans.items())


def test_communication_slows_compute_down():
    tasks = [Task("a", 0, "compute", 4.0), Task("b", 0, "communication", 2.0)]
    timeline = run(tasks, contention=2.0)
    assert timeline.ends == [5.0, 2.0]  # half as much in the first two seconds
    assert timeline.busy == {0: 5.0}
    assert run(tasks).ends == [4.0, 2.0]
    late = [Task("a", 0, "compute", 1.0), Task("b", 0, "communication", 2.0, (0,))]
    late += [Task("c", 0, "compute", 3.0)]
    assert run(late, contention=4.0).ends == [1.0, 3.0, 5.5]


def test_ranks_meet():
    tasks = [
        Task("a", 0, "compute", 3.0),
        Task("sum", 0, "communication", 1.0, (0,), meeting="x"),
        Task("sum", 1, "communication", 1.0, meeting="x"),
        Task("b", 1, "compute", 1.0, (2,)),
    ]
    assert run(tasks).ends == [3.0, 4.0, 4.0, 5.0]


def test_what_cannot_run_is_an_error():
    tasks = [Task("a", 0, "compute", 1.0, (1,)), Task("b", 1, "compute", 1.0, (0,))]
    with pytest.raises(OnefoldRuntimeError, match="a of rank 0, b of rank 1 wait"):
        run(tasks)


# Graphs.


def test_a_product_and_its_reduction(world):
    """Launches are free here, so that the time is that of two formulas."""
    p = flow.placement("cpu", [0, 1])
    x = flow.randn(64, 32, placement=p, sbp=S1)
    w = flow.randn(32, 16, placement=p, sbp=S0)
    graph = nn.Graph.trace(lambda a, b: flow.matmul(a, b).to_global(sbp=B))
    graph(x, w)
    found = graph.simulate(PLAIN, tokens=128)
    moved = 4 * (64 * 16 + 16 * 16 + 64 * 16)
    seconds = max(2 * 64 * 16 * 16 / 1e10, moved / 1e9)
    reduced = all_reduce(span(PLAIN, [0, 1]), 4 * 64 * 16)
    assert found.step_time == pytest.approx(seconds + reduced)
    assert found.tokens_per_second == pytest.approx(128 / found.step_time)
    assert found.mfu == pytest.approx(2 * 64 * 16 * 16 / 1e10 / found.step_time)
    (group,) = found.groups
    assert group.ranks == (0, 1)
    assert group.compute == pytest.approx(seconds)
    assert group.communication == pytest.approx(reduced)
    assert found.received == {"wire": 2 * 4 * 64 * 16}
    assert found.memory == graph.memory(0).total
    assert group.moment == graph.memory(0).moment == "boxing, 2 of 2"
    text = str(found)
    assert "one call on test: 2 ranks, 1 different" in text
    assert "fits in" in text


def test_overlap_hides_communication(world):
    """The gradient of a weight is made while that of the input is reduced."""
    p = flow.placement("cpu", [0, 1])
    model = nn.Sequential(*(nn.Linear(64, 64, placement=p, sbp=B) for _ in range(4)))
    graph = Step(model)
    graph(flow.randn(32, 64, placement=p, sbp=S0))
    found = graph.simulate(PLAIN, memory=False)
    (group,) = found.groups
    assert group.memory is None
    assert group.communication > 0
    assert max(group.compute, group.communication) < found.step_time
    assert found.step_time <= group.compute + group.communication + 1e-12
    assert found.bubble == pytest.approx(group.waiting)


def test_a_collective_waits_for_slower_ranks(world):
    """A share of the compute since the one before, which is no communication."""
    p = flow.placement("cpu", [0, 1])
    x = flow.randn(64, 32, placement=p, sbp=S1)
    w = flow.randn(32, 16, placement=p, sbp=S0)
    graph = nn.Graph.trace(lambda a, b: flow.relu(flow.matmul(a, b).to_global(sbp=B)).sum())
    graph(x, w)
    even, uneven = (graph.simulate(replace(PLAIN, skew=skew), memory=False) for skew in (0.0, 0.25))
    matmul, reduction = even.timeline.tasks[:2]
    assert (matmul.stream, reduction.stream) == ("compute", "communication")
    assert uneven.step_time == pytest.approx(even.step_time + 0.25 * matmul.seconds)
    assert uneven.groups[0].communication == even.groups[0].communication


def test_the_host_begins_what_is_communicated(world):
    """It computes nothing then; a collective that compute hides is not hidden from there on."""
    p = flow.placement("cpu", [0, 1])
    model = nn.Sequential(*(nn.Linear(64, 64, placement=p, sbp=B) for _ in range(4)))
    graph = Step(model)
    graph(flow.randn(32, 64, placement=p, sbp=S0))
    machine = replace(PLAIN, collective_launch=LINK.launch)
    ahead, begun = graph.simulate(PLAIN, memory=False), graph.simulate(machine, memory=False)
    begins = [task for task in begun.timeline.tasks if task.name == "begin boxing"]
    assert len(begins) == sum(task.stream == "communication" for task in ahead.timeline.tasks)
    assert {(task.stream, task.seconds) for task in begins} == {("compute", LINK.launch)}
    assert begun.groups[0].communication == ahead.groups[0].communication
    assert ahead.step_time <= begun.step_time
    staged = pipeline()
    ahead, begun = staged.simulate(PLAIN, memory=False), staged.simulate(machine, memory=False)
    sends = Counter(task.about.kind for task in ahead.timeline.tasks)["send"]
    begins = Counter(task.about.kind for task in begun.timeline.tasks if task.stream == "compute")
    assert begins["send"] == begins["receive"] == sends
    assert ahead.step_time < begun.step_time


class Step(nn.Graph):
    def __init__(self, model, checkpoint=False):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.AdamW(model.parameters()))
        for block in model:
            block.to(nn.graph.GraphModule).activation_checkpointing = checkpoint

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


@pytest.mark.parametrize(
    ("window", "causal", "share"),
    # With whole tiles of 64 at the edge of what is seen.
    [(0, False, 1), (0, True, (1 + 64 / 256) / 2), (8, True, (8 + 64) / 256)],
)
def test_attention_takes_as_long_as_the_pairs_that_are_computed(window, causal, share, world):
    """Model flop count all pairs, and the gradient makes the scores again."""
    p = flow.placement("cpu", [0])
    q = flow.randn(1, 2, 256, 32, placement=p, sbp=B)
    slow = replace(PLAIN, peak={torch.float32: 1e6})
    model = nn.Linear(32, 32, placement=p, sbp=B)
    flop = 4 * 2 * 256 * 256 * 32

    class Attention(nn.Graph):
        def __init__(self, trains):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1)) if trains else None

        def build(self, x):
            options = {"is_causal": causal, "window": window or None}
            y = nn.functional.scaled_dot_product_attention(self.model(x), x, x, **options)
            if self.training:
                y.sum().backward()
            return y

    for trains, done in ((False, flop), (True, flop + 2 * 1.25 * flop)):
        with flow.set_grad_enabled(trains):
            graph = Attention(trains)
            graph(q)
        line = graph.simulate(slow).timeline
        pairs = zip(line.tasks, line.ends, line.starts, strict=True)
        seconds = sum(end - start for task, end, start in pairs if "attention" in task.name)
        assert seconds == pytest.approx(done * share / 1e6)


def test_a_collective_on_an_axis_of_one_rank_is_a_copy(world):
    """Boxing gathers along it on the way to some layouts, and sends nothing."""
    p = flow.placement("cpu", [[rank] for rank in range(32)])
    x = flow.randn(32, 8, placement=p, sbp=(S0, S0))
    graph = nn.Graph.trace(lambda a: (a + 1).to_global(sbp=(B, S0)))
    graph(x)
    found = graph.simulate(PLAIN)
    seconds = all_gather(span(PLAIN, range(32)), 32 * 8 * 4) + 2 * (32 * 8 * 4) / 1e9
    added, copied = 2 * (8 * 4) / 1e9, 2 * (8 * 4) / 1e9
    assert found.step_time == pytest.approx(added + copied + seconds)


def test_recomputation_takes_longer_and_is_no_model_flop(world):
    x = flow.randn(32, 64)
    found = {}
    for checkpoint in (False, True):
        flow.manual_seed(0)
        blocks = [nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(2)]
        graph = Step(nn.Sequential(*blocks), checkpoint)
        graph(x)
        found[checkpoint] = graph.simulate(PLAIN)
    kept, again = found[False], found[True]
    assert again.groups[0].flop == kept.groups[0].flop
    assert kept.groups[0].flop_again == 0 < again.groups[0].flop_again
    assert again.step_time > kept.step_time
    assert again.mfu < kept.mfu


def pipeline(schedule="1f1b", spec=None, micro_batches=8):
    spec = spec or pipelines.Spec(((0,), (1,), (2,)), (0, 0, 0))
    model = pipelines.Model(spec, staged=True)
    graph = pipelines.Train(model, micro_batches, schedule)
    graph._compile(*pipelines.data(model, 4 * micro_batches))
    return graph


@pytest.mark.parametrize(
    ("schedule", "ranks"),
    [("gpipe", (0, 1, 2)), ("1f1b", (0, 1, 2)), ("zb-h1", (0, 1, 2)), ("zb-v", (0, 1, 1, 0))],
)
def test_stages(world, schedule, ranks):
    spec = pipelines.Spec(tuple((rank,) for rank in ranks), (0,) * len(ranks))
    graph = pipeline(schedule, spec)
    found = graph.simulate(PLAIN)
    assert [group.ranks for group in found.groups] == [(rank,) for rank in sorted(set(ranks))]
    plan = graph._latest("test").stages
    line = found.timeline
    for index, actions in enumerate(plan.schedule.ranks):
        names = list(map(str, actions))
        done = [task.name for task in line.tasks if task.rank == index and task.name in names]
        assert done == names
    ends = {task.name: end for task, end in zip(line.tasks, line.ends, strict=True)}
    starts = {task.name: start for task, start in zip(line.tasks, line.starts, strict=True)}
    for transfer in plan.staged.transfers:
        for micro in range(8):
            source, target = (Action(*part, micro) for part in (transfer.source, transfer.target))
            assert ends[str(source)] + LINK.launch <= starts[str(target)]
    work = [group.compute + group.communication for group in found.groups]
    assert max(group.compute for group in found.groups) < found.step_time < sum(work)
    assert [group.memory for group in found.groups] == [
        graph.memory(group.ranks[0]).total for group in found.groups
    ]


def test_bytes_of_stages_are_those_of_the_transfers(world):
    spec = pipelines.Spec(((0, 1), (2, 3)), (0, 1))
    graph = pipeline("1f1b", spec)
    staged = graph._latest("test").stages.staged
    plans = [boxing.plan(t.value.meta, t.result.meta) for t in staged.transfers]
    wanted = 8 * sum(plan.received(rank) for plan in plans for rank in range(4))
    single = [*staged.once, *staged.slices.steps, *staged.end.program.steps]
    several = [*staged.feeds, *(s for steps in staged.segments.values() for s in steps)]
    for steps, times in ((single, 1), (several, 8)):
        for step in steps:
            if step.start is not None:
                plan = boxing.plan(step.source.meta, step.outputs[0].meta)
                wanted += times * sum(plan.received(rank) for rank in range(4))
    assert sum(graph.simulate(PLAIN, memory=False).received.values()) == wanted


def test_more_micro_batches_leave_a_smaller_part_idle(world):
    rates = []
    for count in (2, 4, 16):
        found = pipeline(micro_batches=count).simulate(PLAIN, memory=False)
        rates.append(found.bubble / found.step_time)
    assert rates == sorted(rates, reverse=True)


GRAPHS = {}


def graphs():
    """A data-parallel step and a pipeline, compiled once."""
    if not GRAPHS:
        p = flow.placement("cpu", [0, 1])
        model = nn.Sequential(*(nn.Linear(16, 16, placement=p, sbp=B) for _ in range(3)))
        GRAPHS["data"] = Step(model)
        GRAPHS["data"]._compile(flow.randn(8, 16, placement=p, sbp=S0))
        GRAPHS["stages"] = pipeline()
    return GRAPHS.items()


@settings(max_examples=15)
@given(
    st.floats(1e6, 1e12),
    st.floats(1e6, 1e12),
    st.floats(1e8, 1e13),
    st.floats(0, 1e-4),
    st.floats(1, 1e4),
)
def test_better_hardware_is_never_slower(wire, memory, peak, launch, factor):
    for _, graph in graphs():

        def step(wire, memory, peak, launch, graph=graph):
            links = (replace(LINK, bandwidth=wire),)
            rates = {torch.float32: peak}
            found = replace(PLAIN, links=links, memory_bandwidth=memory, peak=rates, launch=launch)
            return graph.simulate(found, memory=False).step_time

        slow = step(wire, memory, peak, launch) * (1 + 1e-9)
        assert step(wire * factor, memory, peak, launch) <= slow
        assert step(wire, memory * factor, peak, launch) <= slow
        assert step(wire, memory, peak * factor, launch) <= slow
        assert step(wire, memory, peak, launch / factor) <= slow


def test_many_ranks_cost_no_more_than_few():
    """All ranks are equal, so there are as many tasks."""
    counts = {}
    for size in (16, 4096):
        with seen_from(0, size):
            p = flow.placement("cpu", torch.arange(size).view(-1, 8).tolist())
            x = flow.zeros(8 * size, 32, placement=p, sbp=(S0, B))
            model = nn.Linear(32, 64, placement=p, sbp=(B, S0))
            graph = Step(nn.Sequential(model))
            graph._compile(x)
            found = graph.simulate("h100")
            counts[size] = len(found.timeline.tasks)
            assert found.ranks == size
            assert len(found.groups) == 1
    assert counts[16] == counts[4096]


def test_a_trace_has_every_task(world, tmp_path):
    found = pipeline().simulate("a100-80", memory=False)
    found.save_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert faults(trace) == []
    rows = trace["traceEvents"]
    spans = [row for row in rows if row["ph"] == "X"]
    assert [row["ts"] for row in spans] == sorted(row["ts"] for row in spans)
    tracks = Counter((row["pid"], row["name"]) for row in spans)
    assert tracks == Counter((task.rank, task.name) for task in found.timeline.tasks)
    kinds = {row["cat"] for row in spans}
    assert kinds == {"forward", "backward", "update", "send"}
    sent = sum(row["args"]["bytes"] for row in spans if row["cat"] == "send")
    assert sent == sum(group.traffic["transfer", "NVLink"] for group in found.groups)
    assert max(row["ts"] + row["dur"] for row in spans) == pytest.approx(
        1e6 * found.step_time, abs=2e-3
    )
    names = {row["pid"]: row["args"]["name"] for row in rows if row["name"] == "process_name"}
    assert names == {0: "rank 0", 1: "rank 1", 2: "rank 2"}


def test_what_the_driver_and_communicators_take_counts():
    """Rows are scattered in groups of 2 and columns gathered in others."""
    with flow.planning(4, hardware="h100") as cluster:
        (p,) = cluster.meshes(2, 2)
        graph = nn.Graph.trace(lambda x, y: (x.to_global(sbp=(B, S0)), y.to_global(sbp=(B, B))))
        graph(*(flow.zeros(8, 8, placement=p, sbp=each) for each in ((P, S0), (B, S0))))
        assert graph.simulate().hardware == read("h100")
        assert graph.simulate("a100-80").hardware == read("a100-80")
        total = graph.memory(0).total
        given = replace(
            PLAIN, context_bytes=1000, communicator_bytes=100, memory_bytes=total + 1200
        )
        found = graph.simulate(given)
        assert {group.reserved for group in found.groups} == {1200}
        assert found.memory == total + 1200
        assert found.fits
        assert not graph.simulate(replace(given, memory_bytes=total + 1199)).fits
        assert graph.simulate(given, memory=False).fits is None
    with pytest.raises(
        OnefoldValueError, match=r"no hardware is given; .*flow\.planning\(size, ha"
    ):
        graph.simulate()


def test_tokens_are_a_count(world):
    graph = nn.Graph.trace(flow.relu)
    graph(flow.ones(2))
    with pytest.raises(OnefoldValueError, match="tokens must be at least 1, but got 0"):
        graph.simulate("h100", tokens=0)
    with pytest.raises(OnefoldTypeError, match=r"tokens must be an integer, but got 1\.5"):
        graph.simulate("h100", tokens=1.5)


@pytest.mark.parametrize("name", ["a100-80", "h100", "h200"])
def test_a_model_that_does_not_fit_says_so(world, name):
    graph = nn.Graph.trace(flow.relu)
    graph(flow.ones(1024))
    small = replace(read(name), memory_bytes=100)
    assert "more than the 100 B of a device" in str(graph.simulate(small))


def test_gradients_that_are_clipped_together_wait_for_all_ranks(world):
    class Clipped(pipelines.Train):
        def build(self, x, y):
            found = super().build(x, y)
            return *found, nn.utils.clip_grad_norm_(pipelines.trained(self.model), 1.0)

    spec = pipelines.Spec(((0,), (1,), (2,)), (0, 0, 0))
    model = pipelines.Model(spec, staged=True)
    graph = Clipped(model, 4, "1f1b")
    graph._compile(*pipelines.data(model, 16))
    line = graph.simulate(PLAIN, memory=False).timeline
    spans = zip(line.tasks, line.starts, line.ends, strict=True)
    clips = [(start, end) for task, start, end in spans if task.name == "clip_grad_norm_"]
    assert len(clips) == 3
    assert max(start for start, _ in clips) == min(start for start, _ in clips)
    assert all(end - start >= 4 * LINK.latency + LINK.launch for start, end in clips)


class Layers(nn.Graph):
    """A layer on each of two stages, and four micro-batches."""

    def __init__(self, placements):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(64, 64, bias=False, placement=p, sbp=B) for p in placements
        )
        self.add_optimizer(flow.optim.SGD(self.layers.parameters(), lr=0.1))
        self.config.set_gradient_accumulation_steps(4)
        for stage, (layer, p) in enumerate(zip(self.layers, placements, strict=True)):
            layer.to(nn.graph.GraphModule).set_stage(stage, p)

    def build(self, x):
        for layer in self.layers:
            x = layer(x)
        loss = x.sum()
        loss.backward()
        return loss


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_products_that_add_to_sums_take_no_longer(kind):
    """On a GPU, where they compute longer than they move; on a CPU each addition takes time."""
    with flow.planning(2) as cluster:
        meshes = cluster.meshes(1, type=kind)
        graph = Layers(meshes)
        graph(flow.zeros(4 * 256, 64, placement=meshes[0], sbp=B))
        line = graph.simulate(PLAIN, memory=False).timeline
    took = {task.name: task.seconds for task in line.tasks}
    addition = 0.0 if kind == "cuda" else 3 * 64 * 64 * 4 / 1e9
    for stage in range(2):
        for micro in range(1, 4):
            more = took[f"B{stage}.{micro}"] - took[f"B{stage}.0"]
            assert more == pytest.approx(addition, abs=1e-9)


def test_an_einsum_has_the_arithmetic_of_the_product_that_it_is(world):
    a, b = flow.ones(16, 3, 5), flow.ones(16, 4, 5)
    forms = [lambda a, b: flow.einsum("bij,bkj->bik", a, b), lambda a, b: a @ b.transpose(1, 2)]
    found = []
    for form in forms:
        graph = flow.nn.Graph.trace(form)
        graph(a, b)
        found.append([each.done for step in graph.program.steps for each in products_of(step, 0)])
    assert found == [[2 * 16 * 3 * 4 * 5]] * 2
