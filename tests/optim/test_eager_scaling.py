"""Gradient scalers of eager programs: torch's decisions and bits, one decision for all ranks."""

import math

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.engine.sbp import parse
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError

HOW = {"init_scale": 8.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 2}
# What the loss of each step is multiplied by.
FACTORS = [1.0, 1.0, math.inf, 1.0, math.nan, 3.0, 1.0, 1e30, 1.0, 1.0]
W = torch.linspace(-1, 1, 15).reshape(5, 3)
LAYOUTS = {
    "local": {},
    **{
        f"{ranks} {sbp}": {"placement": flow.placement("cpu", ranks), "sbp": parse(sbp)}
        for ranks, sbp in (
            ([0, 1], "(B)"), ([0, 1, 2], "(S0)"), ([1, 0], "(S1)"), ([[0, 1], [2, 3]], "(S0, B)"),
        )
    },
}  # fmt: skip
OPTIMIZERS = {
    "SGD": {"lr": 0.1},
    "AdamW": {"lr": 0.1, "weight_decay": 0.01},
    "NAdam": {"lr": 0.1},
    "Adagrad": {"lr": 0.1},
}


def batch(number):
    return torch.from_numpy(np.random.default_rng(number).standard_normal((4, 5))).float()


def laid(lib, value, layout, split=None):
    if lib is torch:
        return value.clone()
    if layout and split is not None:
        layout = {
            **layout,
            "sbp": (split,) + (flow.sbp.broadcast,) * (layout["placement"].ndim - 1),
        }
    return flow.tensor(value, **layout)


def program(lib, kind, layout, clip=None):
    """What ten steps leave of the weights, the scale and the gradients."""
    w = lib.nn.Parameter(laid(lib, W, layout))
    optimizer = getattr(lib.optim, kind)([w], **OPTIMIZERS[kind])
    scaler = torch.amp.GradScaler("cpu", **HOW) if lib is torch else flow.amp.GradScaler(**HOW)
    told = []
    for number, factor in enumerate(FACTORS):
        optimizer.zero_grad()
        x = laid(lib, batch(number), layout, flow.sbp.split(0))
        loss = ((x @ w) ** 2).mean() * factor
        scaler.scale(loss).backward()
        if clip is not None:
            scaler.unscale_(optimizer)
            lib.nn.utils.clip_grad_norm_([w], clip)
        scaler.step(optimizer)
        scaler.update()
        told.append((scaler.get_scale(), scaler.state_dict()))
        told[-1] += (w.detach().clone(), w.grad.detach().clone())
    return told


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_bits_and_decisions_are_torchs(kind, world):
    for clip in (None, 0.5) if kind == "SGD" else (None,):
        steps = zip(program(flow, kind, {}, clip), program(torch, kind, {}, clip), strict=True)
        for found, wanted in steps:
            assert found[:2] == wanted[:2]
            for ours, theirs in zip(found[2:], wanted[2:], strict=True):
                if kind == "SGD" and clip is None:
                    assert torch.equal(ours.to_torch().nan_to_num(), theirs.nan_to_num())
                torch.testing.assert_close(ours.to_torch(), theirs, equal_nan=True)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_every_layout_decides_alike(kind, layout, world):
    wanted = program(torch, kind, {})
    for ours, theirs in zip(program(flow, kind, LAYOUTS[layout]), wanted, strict=True):
        assert ours[:2] == theirs[:2]
        np.testing.assert_allclose(ours[2].numpy(), theirs[2], rtol=2e-4, atol=1e-5)


def test_two_optimizers_are_skipped_apart_and_followed_together(world):
    def steps(lib):
        a, b = (lib.nn.Parameter(lib.ones(3)) for _ in range(2))
        first, second = lib.optim.SGD([a], lr=1.0), lib.optim.SGD([b], lr=1.0)
        scaler = torch.amp.GradScaler("cpu", **HOW) if lib is torch else flow.amp.GradScaler(**HOW)
        losses = scaler.scale([a.sum(), (b * math.inf).sum()])
        for loss in losses:
            loss.backward()
        for optimizer in (first, second):
            scaler.step(optimizer)
        scaler.update()
        return a.tolist(), b.tolist(), scaler.get_scale()

    assert steps(flow) == steps(torch) == ([0.0] * 3, [1.0] * 3, 2.0)


@pytest.mark.parametrize("factor", [1.0, math.inf])
def test_the_step_of_a_subclass_is_called(factor, world):
    """One that overrides `step`: it runs unless a gradient is not finite, as in torch."""

    def found(lib):
        class Counting(lib.optim.SGD):
            steps = 0

            def step(self, closure=None):
                self.steps += 1
                return super().step(closure)

        w = lib.nn.Parameter(laid(lib, W, {}))
        optimizer = Counting([w], lr=0.1, momentum=0.9)
        scaler = torch.amp.GradScaler("cpu", **HOW) if lib is torch else flow.amp.GradScaler(**HOW)
        for each in (1.0, factor):
            optimizer.zero_grad()
            scaler.scale((w * w).sum() * each).backward()
            scaler.step(optimizer)
            scaler.update()
        return (optimizer.steps, scaler.get_scale()), w.detach().numpy()

    (counts, w), (expected, value) = found(flow), found(torch)
    assert counts == expected
    np.testing.assert_allclose(w, value, rtol=1e-5, atol=1e-6)


def test_a_half_loss_of_autocast_trains(world):
    layer = nn.Linear(4, 2)
    scaler, optimizer = flow.amp.GradScaler(), flow.optim.AdamW(layer.parameters())
    for _ in range(2):
        with flow.autocast("cpu", dtype=flow.float16):
            loss = layer(flow.ones(3, 4)).float().mean() * 2.0**-20
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 2.0**16
    assert layer.weight.grad.abs().min().item() > 0


def test_a_state_of_torchs_is_loaded(world):
    theirs = torch.amp.GradScaler("cpu", **HOW)
    theirs.scale(torch.ones(()))  # makes its scale
    ours = flow.amp.GradScaler()
    ours.load_state_dict({**theirs.state_dict(), "_growth_tracker": 1})
    assert ours.state_dict() == {**theirs.state_dict(), "_growth_tracker": 1}
    before = ours.state_dict()
    with pytest.raises(OnefoldValueError):
        ours.load_state_dict({**before, "growth_factor": 0.5})
    assert ours.state_dict() == before


def test_one_that_is_not_enabled_does_nothing(world):
    w = nn.Parameter(flow.ones(2))
    optimizer, scaler = flow.optim.SGD([w], lr=1.0), flow.amp.GradScaler("cpu", enabled=False)
    loss = w.sum()
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert (w.tolist(), scaler.get_scale(), scaler.state_dict()) == ([0.0, 0.0], 1.0, {})
    scaler.load_state_dict({})
    assert not scaler.is_enabled()


def test_arguments_are_torchs_or_oneflows():
    for scaler in (
        flow.amp.GradScaler(4.0, 3.0, 0.5, 7),
        flow.amp.GradScaler("cuda", 4.0, 3.0, 0.5, 7, True),
        flow.amp.GradScaler(flow.device("cpu"), 4.0, 3.0, growth_interval=7),
        flow.amp.GradScaler(device="cpu", init_scale=4.0, growth_factor=3.0, growth_interval=7),
    ):
        assert list(scaler.state_dict().values()) == [4.0, 3.0, 0.5, 7, 0]
        assert scaler.get_growth_factor() == 3.0 and scaler.get_growth_interval() == 7
    for wrong in (
        lambda: flow.amp.GradScaler(1.0, init_scale=2.0),
        lambda: flow.amp.GradScaler(a=1),
    ):
        with pytest.raises(OnefoldTypeError, match="GradScaler takes"):
            wrong()


def test_calls_out_of_order_are_refused(world):
    w = nn.Parameter(flow.ones(2))
    optimizer, scaler = flow.optim.SGD([w], lr=1.0), flow.amp.GradScaler()
    with pytest.raises(OnefoldRuntimeError, match="No inf checks were recorded for this"):
        scaler.step(optimizer)
    with pytest.raises(OnefoldRuntimeError, match="No inf checks were recorded prior"):
        scaler.update()
    with pytest.raises(OnefoldTypeError, match="must be a Tensor"):
        scaler.scale(2.0)
    scaler.scale(w.sum()).backward()
    with pytest.raises(OnefoldRuntimeError, match="Closure use"):
        scaler.step(optimizer, lambda: None)
    scaler.unscale_(optimizer)
    with pytest.raises(OnefoldRuntimeError, match="already been called on this optimizer"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    for again in (scaler.step, scaler.unscale_):
        with pytest.raises(OnefoldRuntimeError, match=r"step\(\)"):
            again(optimizer)
    scaler.update(32.0)
    assert (scaler.get_scale(), w.tolist()) == (32.0, [0.0, 0.0])
    half = nn.Parameter(flow.ones(2, dtype=flow.float16))
    half.grad = flow.ones_like(half)
    with pytest.raises(OnefoldValueError, match="Attempting to unscale FP16 gradients"):
        scaler.step(flow.optim.SGD([half], lr=1.0))


def test_a_graph_scales_by_itself(world):
    class Step(nn.Graph):
        def build(self, x):
            return flow.amp.GradScaler().scale(x)

    with pytest.raises(OnefoldRuntimeError, match="set_grad_scaler"):
        Step()(flow.ones(2))


def test_one_bad_shard_skips_the_step_on_every_launched_rank():
    def steps():
        layout = {"placement": flow.placement("cpu", [0, 1]), "sbp": flow.sbp.broadcast}
        w = nn.Parameter(flow.ones(2, **layout))
        optimizer, scaler = flow.optim.Adam([w], lr=0.5), flow.amp.GradScaler(8.0)
        found = []
        for bad in (math.nan, 1.0):
            rows = np.ones((4, 2), np.float32)
            rows[0, 0] = bad  # on rank 0 alone
            x = flow.tensor(rows, placement=layout["placement"], sbp=flow.sbp.split(0))
            optimizer.zero_grad()
            scaler.scale((x * w).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            found.append((w.numpy().tolist(), scaler.get_scale()))
        return found

    wanted = [([1.0, 1.0], 4.0), ([0.5, 0.5], 4.0)]
    for found in run_ranks(2, steps, timeout=120):
        np.testing.assert_allclose([w for w, _ in found], [w for w, _ in wanted], rtol=1e-6)
        assert [scale for _, scale in found] == [4.0, 4.0]
