"""What a graph with stages holds on each rank is what its plan says, schedule by schedule."""

from dataclasses import replace

import pipelines
import pytest

import onefold as flow
from onefold.graph.memory.liveness import buffers_of, live_bytes
from onefold.graph.memory.memory_probe import Probe, apart
from onefold.graph.memory.stage_events import stage_events
from onefold.graph.memory_traffic import local_bytes
from onefold.graph.passes import accumulate_products, fuse_chains, offload_activations
from onefold.graph.stages import stage_executor

pytestmark = pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")

WIDE = pipelines.Spec(meshes=((0, 1), (2, 3)), layouts=(0, 1))
UNEVEN = pipelines.Spec(meshes=((0,), (1, 2, 3)), layouts=(0, 1))
LOOSE = pipelines.Spec(((0,), (1,)), (0, 0))
CASES = {
    "gradients that are inputs": (LOOSE, "1f1b"),
    "clipped gradients": (UNEVEN, "1f1b"),
    "1f1b": (WIDE, "1f1b"),
    "gpipe": (WIDE, "gpipe"),
    "zb-h1": (WIDE, "zb-h1"),
    "zb-h2": (pipelines.Spec(((0,), (1,), (2,)), (0, 0, 0)), "zb-h2"),
    "dropout and a shortcut": (replace(WIDE, dropout=0.2, shortcut=True), "1f1b"),
    "a tied weight": (replace(WIDE, tied=True), "1f1b"),
    "interleaved": (pipelines.Spec(((0,), (1,), (0,), (1,)), (0,) * 4), "interleaved"),
    "zb-v": (pipelines.Spec(((0,), (1,), (1,), (0,)), (0,) * 4), "zb-v"),
    "activations on the host": (replace(WIDE, dropout=0.2, offloaded=(0, 1)), "1f1b"),
    "zb-h1, activations on the host": (replace(LOOSE, offloaded=(0, 1)), "zb-h1"),
    "zb-v, a shortcut": (pipelines.Spec(((0,), (1,), (1,), (0,)), (0,) * 4, shortcut=True), "zb-v"),
}


class Loose(pipelines.Train):
    """The gradient of the last bias is an input, and that of its weight is made in a segment."""

    def build(self, x, y):
        out = self.model(x)
        out.sum().backward()
        where = self.model.blocks[-1].where
        (self.model.blocks[-1].bias.expand(16, 4).to_global(where, flow.sbp.broadcast)).backward(y)
        return out


class Clipped(pipelines.Train):
    """The gradients are clipped together, on ranks that have only their stage's."""

    def build(self, x, y):
        found = super().build(x, y)
        return *found, flow.nn.utils.clip_grad_norm_(pipelines.trained(self.model), 1e-3)


class Noted:
    """Tells a probe of what is made outside of the program's steps."""

    def __init__(self, inner, probe):
        self.inner, self.probe = inner, probe

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def carry(self, shards, op):
        return self.inner.carry(apart(shards), op)  # so that mail does not count as the sender's

    def arrive(self, shards, op):
        parts = apart(self.inner.arrive(shards, op))
        self.probe.note(parts, self.inner.plan.dst)
        return parts


def noting(probe):
    """The sums over micro-batches, noted by a probe."""
    real = stage_executor._Call._add_up

    def add_up(call, sums, values):
        begun = [value for _, value in sums if call.totals.get(value.number) is not None]
        real(call, sums, values)
        for value in begun:
            probe.note(call.totals[value.number][0], value.meta)

    return add_up


def measure(monkeypatch, spec, schedule, micro_batches=6):
    """The graph, and the probe of one call of it."""
    flow.manual_seed(0)
    monkeypatch.setattr(offload_activations, "_SOON", 0)  # stages here have few steps
    model = pipelines.Model(spec, staged=True)
    train = {LOOSE: Loose, UNEVEN: Clipped}.get(spec, pipelines.Train)
    graph = train(model, micro_batches, schedule)
    inputs = pipelines.data(model, 16 * micro_batches)
    graph._compile(*inputs)
    pipeline = graph._latest("test").executable
    ranks = sorted({rank for ranks in pipeline.plan.staged.ranks for rank in ranks})
    probe = Probe(pipeline, ranks)
    pipeline.crossings = [Noted(disjoint_boxing, probe) for disjoint_boxing in pipeline.crossings]
    monkeypatch.setattr(stage_executor._Call, "_add_up", noting(probe))
    with flow.no_grad():
        probe.run(inputs)
    return graph, probe


def planned(graph, rank, posted=False):
    events = stage_events(graph._latest("test").stages, rank, posted)
    return max(live_bytes(buffers_of(events), len(events)))


@pytest.mark.parametrize("name", CASES)
def test_the_planned_peak_is_what_is_held(monkeypatch, world, name):
    graph, probe = measure(monkeypatch, *CASES[name])
    found = {rank: probe.peak(rank) for rank in probe.live}
    assert found == {rank: planned(graph, rank) for rank in probe.live}
    for rank in probe.live:
        assert graph.memory(rank).ratio <= 1.1  # of few small buffers; see benchmarks for real ones
        plan = graph.memory(rank)
        assert plan.live + plan.host >= found[rank]  # receives are posted early
        assert (plan.host > 0) == bool(CASES[name][0].offloaded)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "a tied weight", "interleaved"])
def test_products_that_add_to_sums(monkeypatch, world, name):
    """As on a GPU: no gradient of a weight exists next to its sum."""
    monkeypatch.setattr(fuse_chains, "uses_triton", lambda device_type: True)
    with monkeypatch.context() as patched:
        patched.setattr(accumulate_products, "on_triton", lambda step: False)
        plain, _ = measure(patched, *CASES[name])
    graph, probe = measure(monkeypatch, *CASES[name])
    last = max(probe.live)
    assert "accumulate_" in graph.plan(last) and "accumulate_" not in plain.plan(last)
    for rank in probe.live:
        assert probe.peak(rank) == planned(graph, rank)
        assert graph.memory(rank).live <= plain.memory(rank).live


def test_1f1b_holds_less_than_gpipe(monkeypatch, world):
    """All but what the call returns, the outputs of the last stage, and the gradients' sums."""
    peaks = {}
    for schedule in ("gpipe", "1f1b"):
        graph, _ = measure(monkeypatch, WIDE, schedule, 12)
        plans = [graph.memory(rank) for rank in range(4)]
        gradients = [value.meta for _, value in graph.program.gradients]
        sums = [sum(local_bytes(meta, rank) for meta in gradients) for rank in range(4)]
        peaks[schedule] = [p.live - p.kept - s for p, s in zip(plans, sums, strict=True)]
    assert all(a > 2 * b for a, b in zip(peaks["gpipe"], peaks["1f1b"], strict=True))


def test_another_plan_is_noticed(monkeypatch, world):
    """What 1f1b holds is not what gpipe's plan says."""
    _, probe = measure(monkeypatch, WIDE, "1f1b")
    graph, _ = measure(monkeypatch, WIDE, "gpipe")
    assert probe.peak(0) != planned(graph, 0)
