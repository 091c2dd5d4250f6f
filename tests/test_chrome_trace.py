"""Traces keep to the Trace Event Format, so that Perfetto and chrome://tracing show them right."""

import json
import random
import time

import pytest
from trace_faults import faults

import onefold as flow
from onefold import profiler
from onefold.profiler import chrome_trace
from onefold.profiler.events import Event


def exported(prof, tmp_path):
    prof.export_chrome_trace(tmp_path / "trace.json")
    return json.loads((tmp_path / "trace.json").read_text())


@pytest.fixture
def training():
    ranks = [flow.placement("cpu", [0, 1]), flow.placement("cpu", [2, 3])]

    class Train(flow.nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.AdamW(model.parameters()))
            for index, layer in enumerate(model):
                layer.to(flow.nn.graph.GraphModule).set_stage(index, ranks[index])
            self.config.set_gradient_accumulation_steps(2)

        def build(self, x):
            loss = self.model(x).sum()
            loss.backward()
            return loss

    layers = (flow.nn.Linear(6, 6, placement=p, sbp=flow.sbp.broadcast) for p in ranks)
    graph = Train(flow.nn.Sequential(*layers))
    x = flow.ones(4, 6, placement=ranks[0], sbp=flow.sbp.split(0))
    graph(x)
    return lambda: graph(x)


def eager_step():
    p = flow.placement("cpu", [0, 1])
    layer = flow.nn.LSTM(6, 4, placement=p, sbp=flow.sbp.broadcast)
    optimizer = flow.optim.SGD(layer.parameters(), lr=0.1)
    with profiler.record_function("step"), profiler.record_function("inner"):
        layer(flow.ones(3, 4, 6, placement=p, sbp=flow.sbp.split(1)))[0].sum().backward()
        optimizer.step()


@pytest.mark.parametrize("activities", [None, []])
def test_traces_of_programs_keep_to_the_format(activities, training, tmp_path, world):
    schedule = profiler.schedule(wait=0, warmup=1, active=2, repeat=1)
    with profiler.profile(activities=activities, schedule=schedule, record_shapes=True) as prof:
        for step in (eager_step, eager_step, training):
            step()
            prof.step()
    trace = exported(prof, tmp_path)
    assert faults(trace) == []
    shown = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(shown) == len(prof.events())
    assert {"ProfilerStep#1", "ProfilerStep#2"} <= {event["name"] for event in shown}


def test_times_are_microseconds(tmp_path):
    before = time.perf_counter()
    with profiler.profile(activities=[]) as prof, profiler.record_function("wait"):
        time.sleep(0.02)
    whole = time.perf_counter() - before
    (event,) = [e for e in exported(prof, tmp_path)["traceEvents"] if e["ph"] == "X"]
    assert 0.02e6 <= event["dur"] <= whole * 1e6


def test_what_still_runs_ends_with_the_profile(tmp_path):
    traces = []

    def ready(prof):
        traces.append(exported(prof, tmp_path))

    prof = profiler.profile(activities=[], on_trace_ready=ready)
    prof.start()
    with profiler.record_function("open"):
        flow.ones(2) + 1
        prof.stop()
    assert faults(traces[0]) == []
    durations = {e["name"]: e["dur"] for e in traces[0]["traceEvents"] if e["ph"] == "X"}
    assert durations["open"] >= durations["add"] > 0


def test_events_that_overlap_are_on_further_tracks(tmp_path):
    spans = [(0.0, 10.0), (1.0, 4.0), (3.0, 6.0), (5.0, 12.0), (10.0, 13.0), (0.0, 10.0)]
    events = [Event(str(i), "device", begin, end) for i, (begin, end) in enumerate(spans)]
    chrome_trace.save(events, tmp_path / "trace.json", 3)
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert faults(trace) == []
    rows = trace["traceEvents"]
    assert {e["pid"] for e in rows} == {3}
    titles = {e["tid"]: e["args"]["name"] for e in rows if e["name"] == "thread_name"}
    at = {e["name"]: titles[e["tid"]] for e in rows if e["ph"] == "X"}
    names = ["device", "device", "device 2", "device 3", "device", "device"]
    assert list(map(at.get, map(str, range(6)))) == names


def test_any_events_keep_to_the_format(tmp_path):
    draw = random.Random(0)
    for _ in range(20):
        times = [(draw.random() * 20, draw.random() * 5) for _ in range(60)]
        kinds = ["op", "kernel", "device", "user"]
        events = [Event("e", draw.choice(kinds), t, t + d) for t, d in times]
        chrome_trace.save(events, tmp_path / "trace.json", 0)
        assert faults(json.loads((tmp_path / "trace.json").read_text())) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ts": -1.0}, "times of"),
        ({"ph": "B"}, "phase of"),
        ({"tid": "ops"}, "names and numbers of"),
        ({"tid": 7}, "track (0, 7) has no name"),
        ({"ts": 5.0, "dur": 10.0}, "a and b overlap in part"),
    ],
)
def test_faults_are_noticed(change, said, tmp_path):
    chrome_trace.save(
        [Event("a", "op", 0.0, 10.0), Event("b", "op", 1.0, 2.0)], tmp_path / "trace.json", 0
    )
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert faults(trace) == []
    trace["traceEvents"][-1].update(change)
    assert any(fault.startswith(said) for fault in faults(trace))
