"""Scaled losses: the same training while digits last, skipped steps, the scale's growth, state."""

import math

import numpy as np
import pytest
from launched import run_ranks

import onefold as flow
from onefold import nn, sbp
from onefold.errors import OnefoldTypeError, OnefoldValueError

B, S0 = sbp.broadcast, sbp.split(0)
PAIR = flow.placement("cpu", [0, 1])
OTHER = flow.placement("cpu", [2, 3])


class Net(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.second = second
        self.hidden = nn.Linear(6, 8, **first)
        self.head = nn.Linear(8, 3, **({**second, "sbp": S0} if second else {}))

    def forward(self, x):
        x = flow.gelu(self.hidden(x))
        return self.head(x.to_global(**self.second) if self.second else x)


class Train(nn.Graph):
    def __init__(self, first, second, scaler=None, clip=None, micro_batches=1):
        super().__init__()
        flow.manual_seed(0)
        self.model = Net(first, second)
        group = {"params": list(self.model.parameters()), "clip_grad_max_norm": clip}
        self.optimizer = flow.optim.AdamW([group], lr=0.01)
        self.schedule = flow.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.5)
        self.add_optimizer(self.optimizer, lr_sch=self.schedule)
        self.config.set_gradient_accumulation_steps(micro_batches)
        if scaler is not None:
            self.set_grad_scaler(scaler)

    def build(self, x, factor):
        loss = (self.model(x) ** 2).mean() * factor.mean()
        loss.backward()
        return loss


WHERE = {
    "local": ({}, {}),
    "two stages": ({"placement": PAIR, "sbp": B}, {"placement": OTHER, "sbp": B}),
}


def batch(where, number, factor=1.0):
    first, second = where
    x = np.random.default_rng(number).standard_normal((4, 6)).astype(np.float32)
    return (
        flow.tensor(x, **({**first, "sbp": S0} if first else {})),
        flow.full((4,), factor, **({**second, "sbp": S0} if second else {})),
    )


def weights(graph):
    return [param.numpy().tolist() for param in graph.model.parameters()]


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("layout", WHERE)
def test_a_power_of_two_changes_no_bit(layout, clip, micro_batches, world):
    where = WHERE[layout]
    found = []
    for scaler in (None, flow.amp.StaticGradScaler(1024.0), flow.amp.GradScaler()):
        graph = Train(*where, scaler, clip, micro_batches)
        losses = [graph(*batch(where, number)).numpy().tolist() for number in range(4)]
        found.append((losses, weights(graph)))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("bad", [math.inf, math.nan])
@pytest.mark.parametrize("layout", WHERE)
def test_a_step_that_is_not_finite_is_skipped(layout, bad, world):
    where = WHERE[layout]
    scaler = flow.amp.GradScaler(init_scale=64.0, growth_interval=3)
    graph = Train(*where, scaler)
    graph(*batch(where, 0))
    before, state = weights(graph), str(graph.optimizer.state_dict()["state"])
    graph(*batch(where, 1, bad))
    assert weights(graph) == before
    assert str(graph.optimizer.state_dict()["state"]) == state
    assert scaler.get_scale() == 32.0
    assert graph.schedule.last_step == 2
    graph(*batch(where, 2))
    assert weights(graph) != before
    assert all(param.grad is None for param in graph.model.parameters())


def test_the_scale_grows_after_good_steps_in_a_row(world):
    where = WHERE["local"]
    scaler = flow.amp.GradScaler(8.0, 4.0, 0.25, 3)
    graph = Train(*where, scaler)
    factors = [1.0, 1.0, math.inf, *[1.0] * 7]
    scales = []
    for number, factor in enumerate(factors):
        graph(*batch(where, number, factor))
        scales.append(scaler.get_scale())
    assert scales == [8, 8, 2, 2, 2, 8, 8, 8, 32, 32]


def test_one_bad_shard_skips_the_step_on_every_launched_rank():
    def program():
        first, second = flow.placement("cpu", [0, 1]), flow.placement("cpu", [2, 3])
        where = {"placement": first, "sbp": B}, {"placement": second, "sbp": B}
        scaler = flow.amp.GradScaler(64.0)
        graph = Train(*where, scaler)
        before = weights(graph)
        x, factor = batch(where, 0)
        rows = np.ones((4, 6), np.float32)
        rows[0, 0] = math.nan  # on rank 0 alone
        graph(flow.tensor(rows, **{**where[0], "sbp": S0}), factor)
        skipped = weights(graph) == before
        graph(x, factor)
        return skipped, weights(graph) != before, scaler.get_scale()

    assert run_ranks(4, program, timeout=120) == [(True, True, 32.0)] * 4


def test_small_gradients_survive_float16(world):
    class Tiny(nn.Graph):
        def __init__(self, scaler):
            super().__init__()
            self.layer = nn.Linear(2, 1, bias=False)
            nn.init.ones_(self.layer.weight)
            self.add_optimizer(flow.optim.SGD(self.layer.parameters(), lr=2.0**20))
            self.config.enable_amp()
            if scaler is not None:
                self.set_grad_scaler(scaler)

        def build(self, x):
            loss = self.layer(x).sum() * 2.0**-26  # below what float16 can hold
            loss.backward()
            return loss

    found = []
    for scaler in (None, flow.amp.StaticGradScaler(2.0**12)):
        graph = Tiny(scaler)
        graph(flow.ones(1, 2))
        found.append(graph.layer.weight.numpy().tolist())
    assert found == [[[1.0, 1.0]], [[1 - 2.0**-6, 1 - 2.0**-6]]]


def test_only_backward_is_scaled(world):
    """`autograd.grad` inside build gives its caller gradients of the loss that it names."""
    seen = {}

    class Penalty(nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 1, bias=False)
            self.add_optimizer(flow.optim.SGD(self.layer.parameters(), lr=0.0))
            self.set_grad_scaler(flow.amp.StaticGradScaler(256.0))

        def build(self, x):
            y = self.layer(x).sum()
            (slope,) = flow.autograd.grad(y, self.layer.weight, create_graph=True)
            (y + slope.sum()).backward()
            return slope

    graph = Penalty()
    seen["slope"] = graph(flow.ones(1, 2)).numpy().tolist()
    assert seen == {"slope": [[1.0, 1.0]]}
    assert [step.name for step in graph.program.steps].count("loss_scale") == 1


def test_the_state_is_saved_and_restored(world):
    where = WHERE["local"]
    graph = Train(*where, flow.amp.GradScaler(64.0, growth_interval=3))
    for number, factor in enumerate([math.inf, 1.0, 1.0]):
        graph(*batch(where, number, factor))
    saved = graph.state_dict()
    kept = saved["System-Train-GradScaler-Train"]
    assert kept["scale"] == 32.0 and kept["_growth_tracker"] == 2
    other = Train(*where, flow.amp.GradScaler(8.0, growth_interval=3))
    other(*batch(where, 0))
    other.load_state_dict(saved)
    for each in (graph, other):
        each(*batch(where, 3))
    assert weights(other) == weights(graph)
    kept = other.state_dict()["System-Train-GradScaler-Train"]
    assert kept["scale"] == 64.0 and kept["_growth_tracker"] == 0


def test_bad_arguments_are_named(world):
    scaler = flow.amp.GradScaler
    for error, text, call in [
        (OnefoldValueError, "scale_factor must be positive", lambda: flow.amp.StaticGradScaler(0)),
        (OnefoldTypeError, "scale_factor must be a number", lambda: flow.amp.StaticGradScaler("2")),
        (OnefoldValueError, "init_scale must be positive", lambda: scaler(math.inf)),
        (OnefoldValueError, "growth_factor must be above 1", lambda: scaler(growth_factor=1)),
        (OnefoldValueError, "backoff_factor must be below 1", lambda: scaler(backoff_factor=2)),
        (OnefoldTypeError, "must be an integer", lambda: scaler(growth_interval=1.5)),
        (OnefoldValueError, "must be at least 1", lambda: scaler(growth_interval=0)),
        (OnefoldValueError, "but the given one has", lambda: scaler().load_state_dict({})),
        (OnefoldTypeError, "needs a flow.amp.GradScaler", lambda: nn.Graph().set_grad_scaler(2.0)),
    ]:
        with pytest.raises(error, match=text):
            call()
