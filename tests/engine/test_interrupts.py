"""KeyboardInterrupt at every line of a training step: all of it is done, or nothing of it."""

from collections import deque

import numpy as np
import pytest
import torch
from interrupts import assert_whole, interrupted, lines_of, modes, same, stops

import onefold as flow
from onefold import nn, sbp
from onefold.engine.commit import finish

PAIR = flow.placement("cpu", [0, 1])
OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.5},
    "Adam": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1},
    "RMSprop": {"lr": 0.1},
    "Adagrad": {"lr": 0.1},
    "Adamax": {"lr": 0.1},
    "Adadelta": {"lr": 0.1},
    "NAdam": {"lr": 0.1},
    "RAdam": {"lr": 0.1},
    "ASGD": {"lr": 0.1},
    "Rprop": {"lr": 0.1},
    "SparseAdam": {"lr": 0.1},
    "LARS": {"lr": 0.1},
    "LAMB": {"lr": 0.1},
    "Adafactor": {"lr": 0.1},
    "Muon": {"lr": 0.1},
}


def arrays(tree):
    if isinstance(tree, dict):
        return {key: arrays(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [arrays(value) for value in tree]
    return tree.detach().numpy().copy() if isinstance(tree, flow.Tensor) else tree


def tensors(tree):
    """What `arrays` was given."""
    if isinstance(tree, dict):
        return {key: tensors(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [tensors(value) for value in tree]
    return torch.tensor(tree) if isinstance(tree, np.ndarray) else tree


class Training:
    """A model, what trains it, and one step of that."""

    def __init__(self, name="AdamW", options=None, bias=True, zero=False, scaled=False, **layout):
        flow.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8, bias), nn.ReLU(), nn.Linear(8, 2, bias))
        if layout:
            self.model.to_global(**layout)
        options = OPTIMIZERS[name] if options is None else options
        self.optimizer = getattr(flow.optim, name)(self.model.parameters(), **options)
        if zero:
            self.optimizer.enable_zero(shard_min_size=1)
        self.schedule = flow.optim.lr_scheduler.StepLR(self.optimizer, 2)
        self.scaler = flow.amp.GradScaler(init_scale=4.0, enabled=scaled)
        self.x = flow.randn(2, 4, **({**layout, "sbp": sbp.split(0)} if layout else {}))

    def backward(self):
        self.scaler.scale(self.model(self.x).square().sum()).backward()

    def step(self):
        self.scaler.update(4.0)
        self.optimizer.zero_grad()
        self.backward()
        self.scaler.step(self.optimizer)

    def state(self):
        parts = (self.model, self.optimizer, self.schedule, self.scaler)
        return [arrays(part.state_dict()) for part in parts]

    def restore(self, state):
        parts = (self.model, self.optimizer, self.schedule, self.scaler)
        for part, own in zip(parts, state, strict=True):
            part.load_state_dict(tensors(own))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizers_step_is_whole(world, name):
    training = Training(name, bias=name != "Muon")
    training.backward()
    assert assert_whole(training.optimizer.step, training.state, training.restore) > 100


@pytest.mark.parametrize("name", ["AdamW", "Adagrad"])
def test_the_first_step_is_whole(world, name):
    """It makes the state, which is not there before."""
    training = Training(name)
    training.backward()
    assert_whole(training.optimizer.step, training.state, training.restore, ran=False)


LAYOUTS = {
    "data parallel": {"placement": PAIR, "sbp": sbp.broadcast},
    "ZeRO": {"placement": PAIR, "sbp": sbp.broadcast, "zero": True},
    "scaled": {"scaled": True},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_training_step_is_whole(world, layout):
    training = Training(**LAYOUTS[layout])
    assert assert_whole(training.step, training.state, training.restore) > 300


def test_partial_parameters_step_whole(world):
    training = Training("Adam", {"lr": 0.1, "weight_decay": 0.1}, placement=PAIR, sbp=sbp.broadcast)
    for param in training.model.parameters():
        param.data = param.data.to_global(sbp=sbp.partial_sum)
    training.backward()
    assert_whole(training.optimizer.step, training.state, training.restore)


SCHEDULES = {
    "StepLR": lambda optimizer: flow.optim.lr_scheduler.StepLR(optimizer, 1),
    "CyclicLR": lambda optimizer: flow.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 1.0),
    "SWALR": lambda optimizer: flow.optim.swa_utils.SWALR(optimizer, 0.5),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedules_step_is_whole(world, name):
    training = Training("SGD")
    schedule = training.schedule = SCHEDULES[name](training.optimizer)
    assert_whole(schedule.step, training.state, training.restore)


def test_a_plateau_is_whole(world):
    training = Training("SGD")
    schedule = flow.optim.lr_scheduler.ReduceLROnPlateau(training.optimizer, patience=0)
    training.schedule = schedule
    assert_whole(lambda: schedule.step(1.0), training.state, training.restore)


def test_scalers_follow_whole(world):
    training = Training("SGD", scaled=True)
    scaler = training.scaler
    scaler.set_growth_interval(1)

    def restore(state):
        scaler.update(4.0)
        scaler.load_state_dict(state)
        training.optimizer.zero_grad()
        training.backward()
        scaler.unscale_(training.optimizer)

    restore(scaler.state_dict())
    assert_whole(scaler.update, scaler.state_dict, restore, ran=False)


def test_lbfgs_is_whole(world):
    training = Training("LBFGS", {"max_iter": 2, "line_search_fn": "strong_wolfe"})

    def step():
        def closure():
            training.optimizer.zero_grad()
            training.backward()
            return training.model(training.x).square().sum()

        training.optimizer.step(closure)

    assert_whole(step, training.state, training.restore)


class Net(nn.Module):
    """Two layers with statistics and random numbers, which a step changes too."""

    def __init__(self, first=None, second=None):
        super().__init__()
        flow.manual_seed(0)
        self.first = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
        self.second = nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 2))
        for part, place in ((self.first, first), (self.second, second)):
            if place is not None:
                part.to_global(place, sbp.broadcast)
        self.place = second

    def forward(self, x):
        h = self.first(x)
        return self.second(h if self.place is None else h.to_global(placement=self.place))


class Graph(nn.Graph):
    def __init__(self, staged=False, zero=False, scaled=False, micro_batches=1, **layout):
        super().__init__()
        place = layout.get("placement")
        ends = (
            (flow.placement("cpu", [0]), flow.placement("cpu", [1])) if staged else (place, place)
        )
        self.net = Net(*ends)
        optimizer = flow.optim.AdamW(self.net.parameters(), lr=0.1)
        schedule = flow.optim.lr_scheduler.StepLR(optimizer, 1)
        self.add_optimizer(optimizer, lr_sch=schedule)
        self.config.set_gradient_accumulation_steps(micro_batches)
        if staged:
            for stage, part in enumerate((self.net.first, self.net.second)):
                part.to(nn.graph.GraphModule).set_stage(stage, ends[stage])
        if zero:
            self.config.enable_zero(True, stage=2, shard_min_size=1)
        if scaled:
            self.set_grad_scaler(flow.amp.GradScaler(init_scale=4.0, growth_interval=1))
        where = {"placement": ends[0], "sbp": sbp.split(0)} if ends[0] else {}
        self.x = flow.randn(4, 4, **where)

    def build(self, x):
        loss = self.net(x).square().sum()
        loss.backward()
        return loss

    def step(self):
        return self(self.x)

    def state(self):
        return [arrays(self.state_dict()), flow.get_rng_state()]

    def restore(self, state):
        self.load_state_dict(tensors(state[0]))
        flow.set_rng_state(state[1])


GRAPHS = {
    "local": {},
    "data parallel": {"placement": PAIR},
    "ZeRO": {"placement": PAIR, "zero": True},
    "scaled": {"scaled": True},
    "micro-batches": {"micro_batches": 2},
    "stages": {"staged": True, "micro_batches": 2},
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graphs_step_is_whole(world, name):
    graph = Graph(**GRAPHS[name])
    graph.step()  # the second run is unrolled
    assert assert_whole(graph.step, graph.state, graph.restore) > 100


# What changes tensors, generators and modes for a capture, and changes them back.
RESTORING = (
    "commit.py",
    "captured_values.py",
    "compiled_graph.py",
    "generator.py",
    "interpreter.py",
    "random_draws.py",
    "thread_stack.py",
    "zero.py",
)


@pytest.mark.parametrize("name", ["scaled", pytest.param("ZeRO", marks=pytest.mark.slow)])
def test_an_interrupted_compilation_leaves_the_module_as_it_was(world, name):
    """At every 97th line, and at all of the modules that restore."""
    graph = Graph(**GRAPHS[name])
    before, at = graph.state(), modes()
    Graph(**GRAPHS[name]).step()  # what is compiled once in a process is not part of it
    lines = lines_of(Graph(**GRAPHS[name]).step)
    restoring = [stop for stop in stops(lines) if lines[stop - 1][0].endswith(RESTORING)]
    assert len(restoring) > 100
    for stop in sorted({*range(1, len(lines), 97), *restoring}):
        graph = Graph(**GRAPHS[name])
        line = interrupted(graph.step, stop)
        assert same(graph.state(), before) or graph._steps == 1, line
        assert modes() == at, line
        assert all(param.grad is None for param in graph.net.parameters()), line
    graph.step()


def test_the_check_sees_what_is_half_done():
    values = {"a": 0, "b": 0}

    def half():
        values.update(flow.engine.commit.together([]) and {"a": values["a"] + 1})
        flow.sbp.broadcast.__repr__()
        values.update({"b": values["b"] + 1})

    with pytest.raises(AssertionError, match="half done"):
        assert_whole(half, lambda: dict(values), values.update)


def test_other_errors_are_raised_at_once():
    done = []

    def fail():
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        finish(deque([lambda: [lambda: done.append(1)], fail, lambda: [lambda: done.append(2)]]))
    assert done == [1]
