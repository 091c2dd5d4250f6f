"""A step with clipping and a scaled loss reads no number back, and skips on the device exactly."""

import math
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import onefold as flow
from onefold import nn
from onefold.errors import OnefoldRuntimeError, OnefoldValueError
from onefold.optim import clip
from onefold.optim.device_scalar import DeviceScalar, Given

PAIR = {"placement": flow.placement("cpu", [0, 1])}
LAYOUTS = {
    "local": {},
    "split": {**PAIR, "sbp": flow.sbp.split(0)},
    "broadcast": {**PAIR, "sbp": flow.sbp.broadcast},
}
KINDS = {
    "sgd": (flow.optim.SGD, {"lr": 0.125}),
    "momentum": (flow.optim.SGD, {"lr": 0.125, "momentum": 0.5, "nesterov": True}),
    "dampening": (flow.optim.SGD, {"lr": 0.125, "momentum": 0.5, "dampening": 0.25}),
    "adamw": (flow.optim.AdamW, {"lr": 0.125, "weight_decay": 0.1}),
    "amsgrad": (flow.optim.AdamW, {"lr": 0.125, "amsgrad": True}),
    "no correction": (flow.optim.AdamW, {"lr": 0.125, "do_bias_correction": False}),
    "adam": (flow.optim.Adam, {"lr": 0.125, "weight_decay": 0.1}),
    "rmsprop": (flow.optim.RMSprop, {"lr": 0.125, "momentum": 0.5, "centered": True, "eps": 0.1}),
    "lars": (flow.optim.LARS, {"lr": 0.125, "lars_coefficient": 0.1, "weight_decay": 0.1}),
    "lamb": (flow.optim.LAMB, {"lr": 0.125, "weight_decay": 0.1}),
}
READERS = ("item", "tolist", "numpy", "__float__", "__int__", "__bool__", "__index__")


class _Reads(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default):
            self.found.append(str(function))
        return function(*args, **(kwargs or {}))


@contextmanager
def reads(monkeypatch):
    """What of torch tensors is read by the host in the block, as on cuda, where reading waits."""
    with monkeypatch.context() as patch, _Reads() as mode:
        patch.setattr(clip, "free_to_read", lambda number: False)
        for name in READERS:
            real = getattr(torch.Tensor, name)

            def reading(self, *args, _real=real, _name=name):
                mode.found.append(_name)
                return _real(self, *args)

            patch.setattr(torch.Tensor, name, reading)
        yield mode.found


class Train(nn.Graph):
    def __init__(self, kind, layout="local", scaler=None, clip=None, lr=None):
        super().__init__()
        make, options = KINDS[kind]
        self.weight = nn.Module()
        start = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
        self.weight.of = nn.Parameter(flow.tensor(start, **LAYOUTS[layout]))
        group = {"params": [self.weight.of], "clip_grad_max_norm": clip}
        self.optimizer = make([group], **{**options, **({} if lr is None else {"lr": lr})})
        schedule = flow.optim.lr_scheduler.StepLR(self.optimizer, step_size=100)
        self.add_optimizer(self.optimizer, lr_sch=schedule)
        if scaler is not None:
            self.set_grad_scaler(scaler)

    def build(self, x):
        loss = (self.weight.of * x).square().sum()
        loss.backward()
        return loss

    @property
    def value(self):
        return self.weight.of.numpy().copy()


def batch(layout, number, factor=1.0):
    x = np.random.default_rng(number).standard_normal((4, 3)).astype(np.float32)
    x[1, 2] *= factor
    return flow.tensor(x, **LAYOUTS[layout])


def test_reads_are_noticed(monkeypatch):
    x = torch.ones(1)
    for name in ("item", "tolist", "numpy", "__float__", "__int__", "__bool__"):
        with reads(monkeypatch) as found:
            getattr(x, name)()
        assert found
    with reads(monkeypatch) as found:
        torch.ops.aten.item(x)
    assert found == ["aten._local_scalar_dense.default"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scaled", [False, True])
def test_a_graph_that_clips_reads_nothing(kind, layout, scaled, world, monkeypatch):
    scaler = flow.amp.GradScaler(64.0, growth_interval=2) if scaled else None
    graph = Train(kind, layout, scaler, clip=0.5, lr=flow.tensor(0.125))
    graph(batch(layout, 0))
    x = batch(layout, 1)
    with reads(monkeypatch) as found:
        graph(x)
        graph(x)
    assert found == []
    assert scaler is None or scaler.get_scale() == 128.0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_eager_scaling_reads_nothing(layout, world, monkeypatch):
    w = nn.Parameter(flow.ones(4, 3, **LAYOUTS[layout]))
    optimizer = flow.optim.AdamW([w])
    scaler = flow.amp.GradScaler(64.0, growth_interval=2)
    with reads(monkeypatch) as found:
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale((w * w).sum()).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_([w], 1.0)
            scaler.step(optimizer)
            scaler.update()
    assert found == []
    assert scaler.get_scale() == 128.0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_eager_clipping_reads_nothing_unless_it_is_to_raise(layout, world, monkeypatch):
    w = nn.Parameter(flow.ones(4, 3, **LAYOUTS[layout]))
    optimizer = flow.optim.AdamW([{"params": [w], "clip_grad_max_norm": 0.5}])
    w.grad = flow.ones_like(w)
    with reads(monkeypatch) as found:
        optimizer.clip_grad()
        norm = nn.utils.clip_grad_norm_([w], 0.25)
        optimizer.step()
    assert found == []
    assert norm.shape == () and norm.item() == pytest.approx(0.5, rel=1e-5)
    assert np.linalg.norm(w.grad.numpy()) == pytest.approx(0.25, rel=1e-5)
    with reads(monkeypatch) as found:
        optimizer.clip_grad(error_if_nonfinite=True)
    assert found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [0.5, 1e9])
def test_a_graph_clips_as_eager_does(kind, layout, most, world):
    graph, eager = Train(kind, layout, clip=most), Train(kind, layout, clip=most)
    for number in range(3):
        graph(batch(layout, number))
        loss = (eager.weight.of * batch(layout, number)).square().sum()
        loss.backward()
        eager.optimizer.clip_grad()
        eager.optimizer.step()
        eager.optimizer.zero_grad()
        np.testing.assert_allclose(graph.value, eager.value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_skipped_steps_leave_no_trace(kind, layout, bad, world):
    """Also before the first good one: as if the bad batches had never been seen."""
    skipping = Train(kind, layout, flow.amp.GradScaler(64.0), clip=0.5)
    wanted = Train(kind, layout, flow.amp.StaticGradScaler(64.0), clip=0.5)
    for number, factor in enumerate([bad, 1.0, bad, bad, 1.0, 1.0, bad]):
        before = skipping.value
        skipping(batch(layout, number, factor))
        if factor == 1.0:
            wanted(batch(layout, number))
            np.testing.assert_array_equal(skipping.value, wanted.value)
        else:
            np.testing.assert_array_equal(skipping.value, before)
    one, other = [each.optimizer.state_dict()["state"] for each in (skipping, wanted)]
    assert str(one) == str(other)


@pytest.mark.parametrize("scale", [2.0**100, 2.0**-100])
def test_norms_are_of_unscaled_gradients(scale, world):
    """The squares of scaled ones would be infinite, or zero."""
    plain = Train("adamw", clip=0.5)
    scaled = Train("adamw", scaler=flow.amp.StaticGradScaler(scale), clip=0.5)
    for number in range(2):
        for graph in (plain, scaled):
            graph(batch("local", number))
    np.testing.assert_array_equal(plain.value, scaled.value)


def test_each_parameter_counts_its_own_steps(world):
    """Some have no gradient in some steps, and some steps are skipped."""
    ours = [nn.Parameter(flow.ones(2)) for _ in range(3)]
    theirs = [torch.ones(2, requires_grad=True) for _ in range(3)]
    found = flow.optim.AdamW(ours, lr=0.1)
    wanted = torch.optim.AdamW(theirs, lr=0.1, weight_decay=0.0)
    rounds = [((0, 1), 0), ((0, 1, 2), 1), ((0, 2), 0), ((0, 1, 2), 0), ((1,), None), ((0, 1), 0)]
    for number, (some, skipped) in enumerate(rounds):
        for index, (mine, right) in enumerate(zip(ours, theirs, strict=True)):
            grad = torch.tensor([1.0, -0.5]) * (number + index + 1)
            mine.grad = flow.from_torch(grad) if index in some else None
            right.grad = grad.clone() if index in some else None
        given = Given() if skipped is None else Given(found_inf=DeviceScalar.of(skipped))
        found.step_by(given)
        if not skipped:
            wanted.step()
    for mine, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.detach().to_torch(), right.detach())
    steps = [entry["step"] for entry in found.state_dict()["state"].values()]
    assert steps == [4, 4, 2] and all(type(step) is int for step in steps)


@pytest.mark.parametrize("kind", KINDS)
def test_a_learning_rate_that_is_a_tensor(kind, world):
    make, options = KINDS[kind]
    rate = flow.tensor(0.125)
    found = []
    for lr in (0.125, rate):
        w = nn.Parameter(flow.ones(3))
        optimizer = make([{"params": [w], "lr_scale": 0.5}], **{**options, "lr": lr})
        schedule = flow.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for _ in range(3):
            w.grad = flow.tensor([1.0, -2.0, 3.0])
            optimizer.step()
            schedule.step()
        found.append(w.tolist())
    assert found[0] == found[1]
    assert optimizer.param_groups[0]["lr"] is rate and rate.item() == 0.125 / 8
    state = optimizer.state_dict()
    rate.fill_(3.0)
    assert type(state["param_groups"][0]["lr"]) is float
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["lr"] is rate and rate.item() == 0.125 / 8


def test_a_plateau_writes_into_the_rate(world):
    rate = flow.tensor(0.5)
    optimizer = flow.optim.SGD([nn.Parameter(flow.ones(3))], lr=rate)
    schedule = flow.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    for _ in range(3):
        schedule.step(1.0)
    assert optimizer.param_groups[0]["lr"] is rate and rate.item() == 0.125


def test_a_graph_takes_back_the_rate_of_a_state_that_it_refuses(world):
    graph = Train("adamw", lr=flow.tensor(0.25))
    state = graph.state_dict()
    graph.optimizer.param_groups[0]["lr"].fill_(0.5)
    with pytest.raises(OnefoldRuntimeError):
        graph.load_state_dict({**state, "weight": {"of": flow.ones(9)}})
    assert graph.optimizer.param_groups[0]["lr"].item() == 0.5
    graph.load_state_dict(state)
    assert graph.optimizer.param_groups[0]["lr"].item() == 0.25


def test_learning_rates_that_are_refused(world):
    w = nn.Parameter(flow.ones(3))
    for lr in (flow.tensor([0.5]), flow.tensor(1), flow.tensor(0.5, **LAYOUTS["broadcast"])):
        with pytest.raises(OnefoldValueError, match="must be a local floating 0-d one"):
            flow.optim.SGD([w], lr=lr)
    with pytest.raises(OnefoldValueError, match="lr must be >= 0"):
        flow.optim.SGD([w], lr=flow.tensor(-1.0))
