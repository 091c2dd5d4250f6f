"""Stages whose activations wait in host memory: copies overlap the work of one micro-batch."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, strategies as st

import onefold as flow
from onefold import nn
from onefold.errors import OnefoldValueError
from onefold.graph.hardware import read
from onefold.graph.host_copies import FETCH, OFFLOAD, RELEASE, WAIT
from onefold.graph.passes import offload_activations
from onefold.graph.schedules.actions import Action
from onefold.graph.schedules.named_schedules import SCHEDULES, make
from onefold.graph.stages.stage_copies import with_copies

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
def test_copies_are_of_the_segments_of_their_stage(world, schedule):
    found = segments(compiled(Train(schedule=schedule)))
    for stage in "01":
        forward, late = origins(found["F" + stage]), origins(found["R" + stage])
        assert sorted(forward + late) == sorted(AWAY * [OFFLOAD, RELEASE])
        assert forward.count(OFFLOAD) == AWAY and set(late) == {RELEASE}
        early = origins(found.get("P" + stage, ()))
        behind = [origin for kind in "BIW" for origin in origins(found.get(kind + stage, ()))]
        assert sorted(early + behind) == sorted(AWAY * [FETCH, WAIT])
        assert set(early) == ({FETCH} if schedule != "zb-h1" else set())


def test_copies_go_on_beside_the_next_action(world):
    """What is not copied when a forward ends is waited for after the action that follows."""
    orders = compiled(Train(schedule="gpipe"))._latest("test").stages.instructions
    first = " ".join([str(each) for each in orders[0] if isinstance(each, Action)])
    assert first == (
        "F0.0 F0.1 R0.0 F0.2 R0.1 F0.3 R0.2 F0.4 R0.3 P0.0 F0.5 R0.4 P0.1 B0.0 R0.5 P0.2 B0.1 "
        "P0.3 B0.2 P0.4 B0.3 P0.5 B0.4 B0.5"
    )
    orders = compiled(Train())._latest("test").stages.instructions
    last = " ".join([str(each) for each in orders[1] if isinstance(each, Action)])
    assert last.startswith("F1.0 R1.0 P1.0 B1.0 F1.1 R1.1 P1.1 B1.1 ")  # nothing is between


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(1, 4), st.integers(1, 3), st.integers(1, 9))
def test_every_schedule_has_copies_in_order(name, ranks, chunks, count):
    try:
        schedule = make(name, ranks * chunks, count, ranks)
    except OnefoldValueError:
        assume(False)
    parts = {(kind, stage): () for kind in "RP" for stage in range(ranks * chunks)}
    for actions in schedule.ranks:
        copies = with_copies(actions, parts)
        order = [
            each
            for at in range(len(actions) + 1)
            for each in (*copies.get(at, ()), *actions[at : at + 1])
        ]
        place = {action: at for at, action in enumerate(order)}
        assert len(place) == len(order) == 2 * count * chunks + len(actions)
        for action in actions:
            if action.kind == "F":
                stage, micro = action.stage, action.micro_batch
                release, begin = (place[Action(kind, stage, micro)] for kind in "RP")
                last = Action("B", stage, micro)
                last = place[last if last in place else Action("I", stage, micro)]
                assert place[action] < release < begin < last
                # One action of the schedule between, where there is any.
                between = [each for each in order[place[action] + 1 : last] if each in actions]
                during = [each for each in order[place[action] + 1 : release] if each in actions]
                assert len(during) == min(len(between), 1)
                during = [each for each in order[begin + 1 : last] if each in actions]
                assert len(during) == min(max(len(between) - 1, 0), 1)


def test_what_only_weights_need_is_fetched_for_them(world):
    found = segments(compiled(Train(schedule="zb-h1")))
    # The gradient of a matrix product's input does not need what it kept.
    assert origins(found["I0"]) == origins(found["I1"]) == []
    assert origins(found["W1"]).count(FETCH) == AWAY


def test_the_plan_shows_the_copies(world):
    text = compiled(Train()).plan(0)
    assert "  run R0.0\n" in text and "  run P0.0\n" in text
    for origin in HOST:
        assert text.count(f"= {origin}(") == AWAY
    names = ("F0:", "R0:", "P0:", "B0:")
    assert sorted(names, key=text.index) == list(names)


def test_a_stage_holds_fewer_activations_of_each_micro_batch(world):
    plain, away = (compiled(Train(mode, schedule="gpipe")) for mode in (False, True))
    for rank in (0, 1):
        before, plan = plain.memory(rank), away.memory(rank)
        assert before.host == 0
        assert (MICRO_BATCHES - 1) * AWAY * KEPT < plan.host <= MICRO_BATCHES * AWAY * KEPT
        # At a turn what three micro-batches keep is on the device: one computes, and the copies of
        # one each way are beside it.
        assert before.live - plan.live > (MICRO_BATCHES - 4) * AWAY * KEPT


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


@pytest.mark.parametrize("more", ["amp", "zero"])
def test_with_other_settings(world, more):
    places = ((0, 1), (2, 3))

    def trained(mode):
        graph = Train(mode, places=places)
        if more == "amp":
            graph.config.enable_amp(True, dtype=flow.bfloat16)
        else:
            graph.config.enable_zero(True, stage=1)
        losses = [graph(data(places[0])).numpy().tolist() for _ in range(2)]
        parameters = [p.numpy().tolist() for p in graph.model.parameters()]
        assert (OFFLOAD in [step.origin for step in graph.program.steps]) == mode
        return losses, parameters

    assert trained(True) == trained(False)


def test_without_backward_nothing_is_copied(world):
    class Evaluate(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.config.set_gradient_accumulation_steps(MICRO_BATCHES)

        def build(self, x):
            return self.model(x)

    graph = Evaluate(Train().model)
    graph(data())
    assert not {step.origin for step in graph.program.steps} & set(HOST)


PLAIN = replace(read("cpu"), launch=0.0, collective_launch=0.0, contention=1.0, skew=0.0)


def simulated(graph, seconds):
    """One call where a copy of an activation takes so long."""
    return graph.simulate(replace(PLAIN, host_bandwidth=KEPT / seconds), memory=False)


def actions(simulation):
    return {task.name: task.seconds for task in simulation.timeline.tasks}


def test_the_simulator_waits_for_slow_copies(world):
    plain, slow = (simulated(compiled(Train(mode)), 1.0) for mode in (False, True))
    copied = 2 * AWAY * MICRO_BATCHES
    for before, group in zip(plain.groups, slow.groups, strict=True):
        assert group.compute == pytest.approx(before.compute)
        assert group.communication == pytest.approx(copied + before.communication)
    assert slow.step_time > copied
    # The stages do so in parallel, but for the first and the last micro-batch.
    assert slow.step_time < copied * (1 + 2 / MICRO_BATCHES)


def test_fast_copies_take_no_time_in_the_simulator(world):
    plain, fast = (simulated(compiled(Train(mode)), 1e-12) for mode in (False, True))
    assert fast.step_time == pytest.approx(plain.step_time, rel=1e-6)
    rows = {task.stream for task in fast.timeline.tasks}
    assert "copies" in rows


def test_when_copies_begin_and_what_waits_for_them(world):
    line = simulated(compiled(Train()), 1e-6).timeline
    spans = {t.name: (s, e) for t, s, e in zip(line.tasks, line.starts, line.ends, strict=True)}
    copies = [name for name in spans if name.startswith("copies of ")]
    assert len(copies) > 2 * MICRO_BATCHES
    for name in copies:
        start, end = spans[name]
        action = name.removeprefix("copies of ")
        assert start >= spans[action][0]
        if action[0] == "F":
            assert spans["R" + action[1:]][0] >= end
        if action[0] == "P":
            assert spans["B" + action[1:]][0] >= end
