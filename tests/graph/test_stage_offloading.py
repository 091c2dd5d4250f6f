"""Stages whose activations wait in host memory: copies beside the work of one micro-batch."""

from dataclasses import replace

import pytest

import onefold as flow
from onefold import nn
from onefold.graph.hardware import read
from onefold.graph.host_copies import FETCH, OFFLOAD, RELEASE, WAIT
from onefold.graph.passes import offload_activations

B, S0 = flow.sbp.broadcast, flow.sbp.split(0)
LAYERS, WIDTH, ROWS, MICRO_BATCHES = 12, 8, 64, 6
KEPT = ROWS * WIDTH * 4  # bytes of one activation
AWAY = LAYERS - 1  # of a stage: all but its input
HOST = (OFFLOAD, RELEASE, FETCH, WAIT)


@pytest.fixture(autouse=True)
def times(monkeypatch):
    """A step takes a second and a copy two; no activation is needed again too soon."""
    monkeypatch.setattr(offload_activations, "seconds_of", lambda step: float(not step.aliases))
    monkeypatch.setattr(offload_activations, "copy_seconds", lambda meta: 2.0)
    monkeypatch.setattr(offload_activations, "_SOON", 1)


class Stage(nn.Module):
    """Matrix products alone: each keeps its input, whose transpose backward reads."""

    def __init__(self, where):
        super().__init__()
        layout = {"placement": where, "sbp": B}
        self.layers = nn.ModuleList(
            [nn.Linear(WIDTH, WIDTH, bias=False, **layout) for _ in range(LAYERS)]
        )

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Stages(nn.Module):
    def __init__(self, offloaded, staged, places):
        super().__init__()
        self.stages = nn.ModuleList([Stage(where) for where in places])
        for number, (stage, where) in enumerate(zip(self.stages, places, strict=True)):
            view = stage.to(nn.graph.GraphModule)
            view.activation_offloading = offloaded
            if staged:
                view.set_stage(number, where)

    def forward(self, x):
        for stage in self.stages:
            where = stage.layers[0].weight.placement
            x = stage(x.to_global(where, S0))
        return x


class Train(nn.Graph):
    def __init__(self, offloaded=True, staged=True, schedule="1f1b", places=((0,), (1,))):
        super().__init__()
        flow.manual_seed(3)
        self.model = Stages(offloaded, staged, [flow.placement("cpu", each) for each in places])
        self.add_optimizer(flow.optim.SGD(self.model.parameters(), lr=0.1))
        self.config.set_gradient_accumulation_steps(MICRO_BATCHES)
        self.config.set_schedule(schedule if staged else None)

    def build(self, x):
        loss = self.model(x).mean()
        loss.backward()
        return loss


def data(place=(0,)):
    flow.manual_seed(5)
    rows = MICRO_BATCHES * ROWS
    return flow.randn(rows, WIDTH, placement=flow.placement("cpu", place), sbp=S0)


def compiled(graph):
    graph._compile(data())
    return graph


def segments(graph):
    """By segment, the copies in it as (origin, number of what they read first)."""
    found = {}
    for part, steps in graph._latest("test").stages.staged.segments.items():
        copies = [(s.origin, next(s.reads()).number) for s in steps if s.origin in HOST]
        found["".join(map(str, part))] = copies
    return found


def origins(copies):
    return [origin for origin, _ in copies]


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "gpipe"])
def test_each_copy_is_beside_the_work_of_its_stage(world, schedule):
    found = segments(compiled(Train(schedule=schedule)))
    for stage in "01":
        ahead = origins(found["F" + stage])
        assert sorted(ahead) == sorted(AWAY * [OFFLOAD, RELEASE])
        assert ahead[-1] == RELEASE
        behind = [origin for kind in "BIW" for origin in origins(found.get(kind + stage, ()))]
        assert sorted(behind) == sorted(AWAY * [FETCH, WAIT])


def test_what_only_weights_need_is_fetched_for_them(world):
    found = segments(compiled(Train(schedule="zb-h1")))
    # The gradient of a matrix product's input does not need what it kept.
    assert origins(found["I0"]) == origins(found["I1"]) == []
    assert origins(found["W1"]).count(FETCH) == AWAY


def test_the_plan_shows_the_copies(world):
    text = compiled(Train()).plan(0)
    forward, backward = text.split("F0:")[1].split("B0:")
    assert forward.count("= offload(") == forward.count("= release(") == AWAY
    assert backward.count("= fetch(") == backward.count("= wait(") == AWAY


def test_a_stage_holds_fewer_activations_of_each_micro_batch(world):
    plain, away = (compiled(Train(mode, schedule="gpipe")) for mode in (False, True))
    for rank in (0, 1):
        before, plan = plain.memory(rank), away.memory(rank)
        assert before.host == 0
        assert plan.host == MICRO_BATCHES * AWAY * KEPT
        # All that wait keep nothing but the input.
        assert before.live - plan.live > (MICRO_BATCHES - 2) * AWAY * KEPT


def test_what_other_stages_read_stays(world):
    class Shortcut(Train):
        def build(self, x):
            first, second = self.model.stages
            kept = first.layers[0](x.to_global(first.layers[0].weight.placement, S0))
            y = kept
            for layer in first.layers[1:]:
                y = layer(y)
            there = second.layers[0].weight.placement
            y = second(y.to_global(there, S0)) + kept.to_global(there, S0)
            loss = y.mean()
            loss.backward()
            return loss

    graph = Shortcut(offloaded=False)
    for stage in graph.model.stages:
        for layer in stage.layers:
            view = layer.to(nn.graph.GraphModule)
            view.set_stage(int(stage is graph.model.stages[1]), layer.weight.placement)
            view.activation_offloading = True
    found = segments(compiled(graph))
    assert origins(found["F0"]).count(OFFLOAD) == AWAY - 1


def test_two_passes_in_a_call(world):
    """What forward reads after a backward stays on the device; the rest may wait."""

    class Twice(Train):
        def build(self, x):
            losses = []
            for _ in range(2):
                losses.append(self.model(x).mean())
                losses[-1].backward()
                x = x * 0.5
            return losses

    found = []
    for mode in (False, True):
        graph = Twice(mode)
        losses = [y.numpy().tolist() for _ in range(2) for y in graph(data())]
        found.append((losses, [p.numpy().tolist() for p in graph.model.parameters()]))
    assert found[0] == found[1]
    assert origins(segments(graph)["F0"]).count(OFFLOAD) >= AWAY


def test_with_checkpoints_inside(world):
    found = []
    for mode in (False, True):
        graph = Train(mode)
        for stage in graph.model.stages:
            for layer in list(stage.layers)[::3]:
                layer.to(nn.graph.GraphModule).activation_checkpointing = True
        losses = [graph(data()).numpy().tolist() for _ in range(2)]
        found.append((losses, [p.numpy().tolist() for p in graph.model.parameters()]))
    assert found[0] == found[1]
    assert OFFLOAD in origins(segments(graph)["F1"])


PLAIN = replace(read("cpu"), launch=0.0, collective_launch=0.0, contention=1.0, skew=0.0)


def simulated(graph, seconds):
    """One call where a copy of an activation takes so long."""
    return graph.simulate(replace(PLAIN, host_bandwidth=KEPT / seconds), memory=False)


def actions(simulation):
    return {task.name: task.seconds for task in simulation.timeline.tasks}


def test_the_simulator_waits_for_slow_copies(world):
    plain = actions(simulated(compiled(Train(False)), 1.0))
    slow = simulated(compiled(Train()), 1.0)
    found = actions(slow)
    # Copies follow each other, and are beside far less than a second of computing.
    assert found["F0.1"] == pytest.approx(AWAY + plain["F0.1"], rel=1e-2)
    assert found["B0.1"] == pytest.approx(AWAY + plain["B0.1"], rel=1e-2)
    assert found["copies of F0.1"] == pytest.approx(AWAY)
    # Two directions, of each of the micro-batches.
    assert slow.groups[0].communication > 2 * AWAY * MICRO_BATCHES
    compute = simulated(compiled(Train(False)), 1.0).groups[0].compute
    assert slow.groups[0].compute == pytest.approx(compute)


def test_fast_copies_take_no_time_in_the_simulator(world):
    plain, fast = (simulated(compiled(Train(mode)), 1e-12) for mode in (False, True))
    assert fast.step_time == pytest.approx(plain.step_time, rel=1e-6)
    rows = {task.stream for task in fast.timeline.tasks}
    assert "copies" in rows


def test_copies_begin_with_their_action(world):
    line = simulated(compiled(Train()), 1e-6).timeline
    starts = {task.name: at for task, at in zip(line.tasks, line.starts, strict=True)}
    copies = [name for name in starts if name.startswith("copies of ")]
    assert len(copies) == 2 * 2 * MICRO_BATCHES
    for name in copies:
        assert starts[name] == pytest.approx(starts[name.removeprefix("copies of ")], abs=1e-9)
