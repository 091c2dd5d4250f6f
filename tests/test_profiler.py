"""profiler: comm, dispatch and profile tell what happens, and nothing outside their blocks."""

import gzip
import json
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from launched import run_ranks
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent

import onefold as flow
from onefold import profiler
from onefold.distributed import comm_log
from onefold.engine import interpreter
from onefold.engine.dispatch_plan import clear_plans
from onefold.engine.names import names
from onefold.engine.placement import Placement
from onefold.engine.sbp import broadcast, partial_sum, split
from onefold.errors import OnefoldRuntimeError, OnefoldValueError
from onefold.graph import call_list
from onefold.profiler.averages import averages
from onefold.profiler.events import Event, with_kernels
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

PAIR = Placement("cpu", [0, 1])


def normal(*shape):
    return torch.from_numpy(np.random.default_rng(1).standard_normal(shape))


@pytest.fixture(autouse=True)
def no_plans():
    clear_plans()


def test_hits_and_misses():
    x = make_local(normal(4, 3))
    with profiler.dispatch() as log:
        for _ in range(3):
            y = names.tanh(x)
    assert torch.equal(value_of(y), value_of(x).tanh())
    tanh = log.ops["tanh"]
    assert (tanh.calls, tanh.hits, tanh.misses, tanh.collectives) == (3, 2, 1, 0)
    assert (log.calls, log.hits, log.misses) == (3, 2, 1)
    names.tanh(x)
    assert log.calls == 3, "calls after the block are not counted"
    assert interpreter.get_current() is None


def test_backward_is_counted():
    x = make_local(normal(4, 3)).requires_grad_()
    with profiler.dispatch() as log:
        names.sum(names.tanh(x)).backward()
    assert log.calls > 3
    assert log.calls == sum(counts.calls for counts in log.ops.values())


def test_boxing_is_counted_for_the_op_that_needs_it():
    x = make_global(normal(4, 3), PAIR, (partial_sum,))
    w = make_global(normal(3, 2), PAIR, (partial_sum,))
    with profiler.dispatch() as log, profiler.comm() as traffic:
        y = names.tanh(x)
        z = names.mm(x, w)
    assert log.ops["tanh"].collectives > 0
    assert log.ops["mm"].collectives > 0
    assert log.collectives == len(traffic.records)
    assert torch.allclose(value_of(y), normal(4, 3).tanh())
    assert torch.allclose(value_of(z), normal(4, 3) @ normal(3, 2))


def test_to_global_is_counted():
    x = make_global(normal(4, 3), PAIR, (split(0),))
    with profiler.dispatch() as log:
        names.to_global(x, sbp=broadcast)
        names.to_global(x, sbp=split(0))
    assert log.ops["to_global"].collectives == 1


def test_values_can_be_read_inside_the_block():
    x = make_global(normal(4, 3), PAIR, (split(0),))
    with profiler.dispatch() as log:
        assert np.allclose(x.numpy(), normal(4, 3).numpy())
        assert "tensor" in repr(x)
        x.to_local()
    assert log.misses == 0


def test_an_op_that_raises_is_counted_and_the_block_ends():
    x = make_local(normal(4, 3))
    with pytest.raises(RuntimeError), profiler.dispatch() as log:
        names.mm(x, x)
    assert log.ops["mm"].calls == 1
    assert interpreter.get_current() is None


def test_blocks_nest():
    x = make_local(normal(4, 3))
    with profiler.dispatch() as outer:
        names.tanh(x)
        with profiler.dispatch() as inner:
            names.tanh(x)
    assert (outer.calls, inner.calls) == (2, 1)


class Train(flow.nn.Graph):
    def __init__(self, block):
        super().__init__()
        self.block = block
        flow.manual_seed(1)
        shared = flow.nn.Linear(3, 3)
        self.first = flow.nn.Sequential(shared, flow.nn.Tanh(), shared)
        self.last = flow.nn.LayerNorm(3)
        parameters = [*self.first.parameters(), *self.last.parameters()]
        self.add_optimizer(flow.optim.SGD(parameters, lr=0.1))

    def build(self, x):
        with self.block():
            kept = self.first[0].weight.detach()
            y = self.last(self.first(x)) @ kept + x.detach()
            loss = y.sum()
            loss.backward()
        return loss, y


@pytest.mark.parametrize("around", [False, True])
def test_a_capture_is_the_same_in_a_block(around):
    """The same steps, of the same modules, with the same names."""
    x = flow.from_torch(normal(4, 3).float())
    plain, looked_at = Train(nullcontext), Train(nullcontext if around else profiler.dispatch)
    plain(x)
    with profiler.dispatch() if around else nullcontext():
        looked_at(x)
    assert "first.0" in plain.plan(0) and "last" in plain.plan(0)
    assert looked_at.plan(0) == plain.plan(0)
    assert str(looked_at.program) == str(plain.program)


def test_an_interpreter_that_only_looks_hands_everything_on():
    wanted = {name for name in vars(interpreter.Interpreter) if not name.startswith("_")}
    assert wanted <= vars(interpreter.Through).keys()


def test_the_table_has_a_row_per_op_and_a_sum():
    x = make_local(normal(4, 3))
    with profiler.dispatch() as log:
        names.tanh(x)
        names.tanh(x)
        names.sum(x)
    lines = str(log).splitlines()
    assert lines[0].split()[:4] == ["op", "calls", "hits", "misses"]
    assert [line.split()[:4] for line in lines[1:]] == [
        ["tanh", "2", "1", "1"],
        ["sum", "1", "0", "1"],
        ["all", "3", "1", "2"],
    ]


def test_comm_counts_bytes_per_rank():
    x = make_global(normal(4, 3), PAIR, (split(0),))
    with profiler.comm() as log:
        names.to_global(x, sbp=broadcast)
    assert [log.total_bytes(rank) for rank in (0, 1)] == [48, 48]
    assert log.records[0].ranks == (0, 1)
    assert log.records[0].op == "to_global"
    assert log.records[0].line.startswith("test_profiler.py:")


# profile.


class Layers(flow.nn.Module):
    """Tensor parallel layers on two ranks."""

    def __init__(self):
        super().__init__()
        self.up = flow.nn.Linear(6, 8, placement=PAIR, sbp=split(0))
        self.down = flow.nn.Linear(8, 4, placement=PAIR, sbp=split(1))

    def forward(self, x):
        return self.down(flow.relu(self.up(x)))


def step_of(model, optimizer, x):
    loss = (model(x) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.fixture
def step():
    model = Layers()
    optimizer = flow.optim.AdamW(model.parameters())
    x = make_global(normal(5, 6).float(), PAIR, (broadcast,))
    return lambda: step_of(model, optimizer, x)


def rows(profile, **options):
    return {each.key: each for each in profile.key_averages(**options)}


def test_a_profile_has_ops_updates_and_communication_with_their_times(step):
    with profiler.comm() as log, profiler.profile() as prof:
        step()
    found = rows(prof)
    assert found["linear"].count == 2
    assert found["relu"].count == 1
    assert found["relu_backward"].count == 1
    assert found["Optimizer.step#AdamW.step"].count == 1
    exchanged = [event for event in prof.events() if event.kind == "communication"]
    assert sum(event.comm_bytes for event in exchanged) == log.total_bytes() > 0
    for row in found.values():
        assert 0 <= row.self_cpu_time_total <= row.cpu_time_total
        assert row.kernel_time_total + row.comm_time_total <= row.cpu_time_total
        assert row.cpu_time == row.cpu_time_total / row.count
    assert found["linear"].kernel_time_total > 0
    kernels = rows(prof, group_by="kernel")
    assert {"aten::relu", "aten::mm"} <= kernels.keys()
    assert interpreter.get_current() is None
    assert comm_log.watchers == call_list.watchers == []


def test_events_know_their_module_line_and_direction(step):
    with profiler.profile(activities=[], record_shapes=True) as prof:
        step()
    by_name = {}
    for event in prof.events():
        by_name.setdefault(event.name, []).append(event)
    up, down = by_name["linear"]
    assert (up.module, down.module) == ("Layers.up", "Layers.down")
    assert up.line.startswith("test_profiler.py:") and up.line.endswith("in forward")
    assert up.input_shapes == ((5, 6), (8, 6), (8,))
    assert up.layouts == ("(B)", "(S0)", "(S0)")
    (relu,) = by_name["relu_backward"]
    assert (relu.module, relu.backward, up.backward) == ("Layers", True, False)
    assert {each.module for each in by_name["mm_tn"]} == {"Layers.up", "Layers.down"}
    modules = rows(prof, group_by="module")
    assert {"Layers", "Layers.up", "Layers.down"} <= modules.keys()
    assert {line.split()[-1] for line in rows(prof, group_by="line")} == {"forward", "step_of"}
    shapes = prof.key_averages(group_by_input_shape=True)
    assert [each.count for each in shapes if each.key == "linear"] == [1, 1]


def test_the_steps_of_a_graph_are_events_of_their_modules():
    flow.manual_seed(0)
    model = Layers()

    class Training(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.AdamW(model.parameters()))

        def build(self, x):
            loss = model(x).sum()
            loss.backward()
            return loss

    graph = Training()
    x = make_global(normal(5, 6).float(), PAIR, (broadcast,))
    graph(x)
    with profiler.profile(activities=[]) as prof:
        graph(x)
    found = {(event.name, event.module, event.backward) for event in prof.events()}
    assert ("linear", "model.up", False) in found
    assert ("relu_backward", "model", True) in found
    assert rows(prof)["adamw"].count == 1
    graph(x)
    assert rows(prof)["adamw"].count == 1, "calls after the block are not recorded"


def test_a_table_is_sorted_and_cut(step):
    with profiler.profile(activities=[]) as prof:
        step()
    averages = prof.key_averages()
    lines = averages.table(sort_by="self_cpu_time_total", row_limit=3).splitlines()
    assert len(lines) == 4
    assert lines[0].split("  ")[0] == "Name"
    times = sorted(averages, key=lambda each: -each.self_cpu_time_total)
    assert [line.split()[0] for line in lines[1:]] == [each.key.split()[0] for each in times[:3]]
    assert len(averages.table(row_limit=-1).splitlines()) == len(averages) + 1
    with pytest.raises(ValueError, match=r"sort_by must be one of .*, not 'beauty'"):
        averages.table(sort_by="beauty")


def test_the_time_of_kernels_on_a_device_is_no_time_of_the_host():
    """As torch records a launch and its kernel, which runs after the op has ended."""
    outer = Event("linear", "op", 0.0, 20.0)
    inner = Event("add", "op", 10.0, 15.0, parent=outer)
    recorded = [
        FunctionEvent(1, "launch", 0, 2, 3),
        FunctionEvent(2, "launch", 0, 11, 12),
        FunctionEvent(3, "gemm", 0, 30, 70, device_type=DeviceType.CUDA),
        FunctionEvent(4, "vectorized_add", 0, 70, 77, device_type=DeviceType.CUDA),
    ]
    recorded[0].append_kernel("gemm", 0, 40)
    recorded[1].append_kernel("vectorized_add", 0, 7)
    events = with_kernels([outer, inner], recorded, 0.0)
    ops = averages(events, "op")
    assert [(row.device_time_total, row.self_device_time_total) for row in ops] == [
        (47, 40),
        (7, 7),
    ]
    kernels = {row.key: row for row in averages(events, "kernel")}
    for name, time in (("gemm", 40), ("vectorized_add", 7)):
        row = kernels[name]
        assert row.device_time_total == row.self_device_time_total == time
        assert row.cpu_time_total == row.self_cpu_time_total == row.host_time_total == 0
    for sort_by in ("self_cuda_time_total", "self_device_time_total", "cuda_time_total"):
        lines = ops.table(sort_by=sort_by).splitlines()
        assert "Self device" in lines[0] and lines[1].startswith("linear")


def test_record_function_names_a_block_and_a_function(step):
    @profiler.record_function("all of it", "now")
    def work():
        with profiler.record_function("half"):
            step()

    work()  # nothing without a profile
    with profiler.profile(activities=[]) as prof:
        work()
    found = rows(prof)
    assert found["half"].count == found["all of it(now)"].count == 1
    assert found["half"].cpu_time_total <= found["all of it(now)"].cpu_time_total


def test_a_schedule_says_which_steps_are_recorded(step):
    recorded = []

    def ready(prof):
        recorded.append([e.name for e in prof.events() if e.name.startswith("ProfilerStep")])

    schedule = profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    with profiler.profile(activities=[], schedule=schedule, on_trace_ready=ready) as prof:
        with pytest.raises(RuntimeError, match="nothing was recorded yet"):
            prof.events()
        for _ in range(10):
            step()
            prof.step()
    assert recorded == [
        ["ProfilerStep#2", "ProfilerStep#3"],
        ["ProfilerStep#6", "ProfilerStep#7"],
    ]
    assert rows(prof)["relu"].count == 2


def test_a_trace_is_what_perfetto_reads(step, tmp_path):
    with profiler.profile(record_shapes=True) as prof:
        step()
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(path)
    trace = json.loads(path.read_text())["traceEvents"]
    shown = [event for event in trace if event["ph"] == "X"]
    assert len(shown) == len(prof.events())
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in shown)
    assert {"op", "module", "communication", "optimizer", "kernel"} == {e["cat"] for e in shown}
    (relu,) = [event for event in shown if event["name"] == "relu"]
    assert relu["args"]["module"] == "Layers"
    assert relu["args"]["Input Dims"] == [[5, 8]]
    titles = {event["args"].get("name") for event in trace if event["ph"] == "M"}
    assert {"rank 0", "ops", "kernels", "communication"} <= titles


@pytest.mark.parametrize(("use_gzip", "opener"), [(False, open), (True, gzip.open)])
def test_torchs_handler_of_traces_can_be_used(use_gzip, opener, step, tmp_path):
    ready = profiler.tensorboard_trace_handler(str(tmp_path), use_gzip=use_gzip)
    with profiler.profile(activities=[], on_trace_ready=ready):
        step()
    (path,) = tmp_path.iterdir()
    with opener(path, "rt") as file:
        assert json.load(file)["traceEvents"]


def test_what_is_profiled_gives_the_same_bits(step):
    results = []
    for block in (nullcontext, lambda: profiler.profile(activities=[])):
        flow.manual_seed(3)
        model = Layers()
        optimizer = flow.optim.AdamW(model.parameters())
        x = make_global(normal(5, 6).float(), PAIR, (broadcast,))
        with block():
            for _ in range(2):
                step_of(model, optimizer, x)
        results.append([value_of(param.detach()) for param in model.parameters()])
    assert all(map(torch.equal, *results))


def test_an_error_ends_the_profile():
    with pytest.raises(RuntimeError), profiler.profile(activities=[]) as prof:
        names.mm(make_local(normal(4, 3)), make_local(normal(4, 3)))
    assert rows(prof)["mm"].count == 1
    assert interpreter.get_current() is None


def test_the_inner_profile_ends_first():
    x = make_local(normal(4, 3))
    outer, inner = profiler.profile(activities=[]), profiler.profile(activities=[])
    outer.start()
    inner.start()
    for end in (outer.stop, lambda: outer.__exit__(None, None, None)):
        with pytest.raises(OnefoldRuntimeError, match="stop the inner profile first"):
            end()
    names.tanh(x)
    inner.stop()
    names.tanh(x)
    outer.stop()
    assert (rows(inner)["tanh"].count, rows(outer)["tanh"].count) == (1, 2)
    assert interpreter.get_current() is None


def cast():
    return flow.autocast("cpu", dtype=flow.bfloat16)


def test_a_profile_and_autocast_may_end_in_any_order():
    x = make_local(normal(4, 4)).float()
    prof, inside = profiler.profile(activities=[]), profiler.profile(activities=[])
    with cast():
        with cast():
            prof.start()
            assert flow.is_autocast_enabled("cpu")
            with flow.autocast("cpu", enabled=False):
                assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.bfloat16
        inside.start()
        assert (x @ x).dtype == torch.bfloat16
        inside.stop()
    assert (x @ x).dtype == torch.float32
    prof.stop()
    assert interpreter.get_current() is None
    assert (rows(prof)["matmul"].count, rows(inside)["matmul"].count) == (4, 1)
    prof.start()
    with cast():
        prof.stop()
        assert (x @ x).dtype == torch.bfloat16
    assert interpreter.get_current() is None


def test_a_step_that_cannot_end_the_recording_changes_nothing(step):
    def schedule(step):
        return torch.profiler.ProfilerAction.NONE if step else torch.profiler.ProfilerAction.RECORD

    with profiler.profile(activities=[], schedule=schedule) as prof:
        with profiler.dispatch(), pytest.raises(OnefoldRuntimeError, match="the inner profile"):
            prof.step()
        step()
        prof.step()
        step()
    assert prof.step_num == 1 and rows(prof)["relu"].count == 1


def test_a_profile_cannot_start_or_end_in_a_capture():
    around, inside = profiler.profile(activities=[]), profiler.profile(activities=[])

    class Profiled(flow.nn.Graph):
        def build(self, x):
            with pytest.raises(OnefoldRuntimeError, match="cannot start while a graph is captured"):
                inside.start()
            with pytest.raises(OnefoldRuntimeError, match="cannot stop"):
                around.stop()
            return flow.tanh(x)

    with around:
        Profiled()(make_local(normal(4, 3)))
    assert "tanh" in rows(around) and interpreter.get_current() is None
    with pytest.raises(OnefoldRuntimeError, match="nothing was recorded yet"):
        inside.events()


def test_one_profile_records_kernels():
    with profiler.profile() as outer:
        with pytest.raises(OnefoldRuntimeError, match=r"use activities=\[\] for one of them"):
            profiler.profile().start()
        with profiler.profile(activities=[]) as inner:
            names.tanh(make_local(normal(4, 3)))
    assert "aten::tanh" in rows(outer, group_by="kernel") and rows(inner)["tanh"].count == 1
    with profiler.profile(activities=[]), profiler.profile() as inner:
        names.tanh(make_local(normal(4, 3)))
    assert "aten::tanh" in rows(inner, group_by="kernel")


def test_a_group_is_one_of_those_known():
    with profiler.profile(activities=[]) as prof:
        pass
    with pytest.raises(OnefoldValueError, match="one of op, module, line, kernel, not 'nope'"):
        prof.key_averages(group_by="nope")


def test_processes_are_profiled_by_rank(tmp_path):
    def program():
        pair = Placement("cpu", [0, 1])
        x = make_global(normal(4, 3), pair, (split(0),))
        with profiler.profile(activities=[]) as prof:
            names.to_global(x, sbp=broadcast)
        prof.export_chrome_trace(tmp_path / f"{flow.env.get_rank()}.json")
        return [(each.key, each.count, each.comm_bytes) for each in prof.key_averages()]

    first, second = run_ranks(2, program)
    assert first == second == [("to_global", 1, 96), ("all_gather", 1, 96)]
    for rank in (0, 1):
        trace = json.loads((tmp_path / f"{rank}.json").read_text())["traceEvents"]
        assert {event["pid"] for event in trace} == {rank}


def test_torchs_older_profile():
    """torch's older class takes the same arguments, and counts the same calls."""
    counts = []
    for lib in (torch, flow):
        older = lib.autograd.profiler
        with (
            older.profile(record_shapes=True, use_kineto=True) as prof,
            older.record_function("part"),
        ):
            lib.tanh(lib.ones(3))
        rows = {row.key.removeprefix("aten::"): row.count for row in prof.key_averages()}
        counts.append({name: rows[name] for name in ("part", "tanh")})
        assert prof.table(sort_by="self_cpu_time_total") and len(prof.function_events)
    assert counts[0] == counts[1]
    with flow.autograd.profiler.profile(enabled=False) as prof:
        flow.tanh(flow.ones(3))
    with pytest.raises(OnefoldRuntimeError, match="nothing was recorded"):
        prof.key_averages()
