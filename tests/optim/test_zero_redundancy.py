"""Optimizer.enable_zero: the same updates, with state (and gradients) in shards."""

import copy

import numpy as np
import pytest
from launched import run_ranks
from small_graphs import SquareMean

import onefold as flow
from onefold import nn
from onefold.engine.sbp import parse, short
from onefold.errors import OnefoldTypeError, OnefoldValueError

OPTIMIZERS = {
    "SGD": {"momentum": 0.9},
    "Adam": {"weight_decay": 0.1},
    "AdamW": {"amsgrad": True},
    "Adagrad": {},
    "Adadelta": {"lr": 0.5},
    "RMSprop": {"centered": True},
    "LAMB": {},
    "LARS": {},
    "NAdam": {},
    "Adafactor": {},
    "Rprop": {},
}
PLACES = {
    "two": ([0, 1], "(B)", "(S0)"),
    "three": ([0, 1, 2], "(B)", "(S0)"),  # uneven shards
    "data and model": ([[0, 1], [2, 3]], "(B, S0)", "(S0, B)"),
    "mesh": ([[0, 1], [2, 3]], "(B, B)", "(S0, S0)"),
}


def fresh(place):
    ranks, sbp, _ = PLACES[place]
    p = flow.placement("cpu", ranks)
    flow.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4, bias=False)).double()
    model.to_global(p, (flow.sbp.broadcast,) * p.ndim).to_global(sbp=parse(sbp))
    return model


def train(model, optimizer, x_sbp, steps=3, micro_batches=1):
    p = model[0].weight.placement
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(micro_batches):
            values = np.random.default_rng(10 * step + part).normal(size=(12, 5))
            x = flow.tensor(values, placement=p, sbp=parse(x_sbp))
            loss = model(x).square().mean()
            loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses, {name: value.numpy() for name, value in model.named_parameters()}


def assert_same(found, wanted):
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-10)
    for name, value in wanted[1].items():
        np.testing.assert_allclose(found[1][name], value, rtol=1e-8, atol=1e-11, err_msg=name)


def made(name, model, **options):
    return getattr(flow.optim, name)(model.parameters(), **{"lr": 0.05} | options)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("stage", [1, 2])
def test_updates_are_the_same(name, stage, world):
    for place, (_, _, x_sbp) in PLACES.items():
        plain, model = fresh(place), fresh(place)
        wanted = train(plain, made(name, plain, **OPTIMIZERS[name]), x_sbp)
        optimizer = made(name, model, **OPTIMIZERS[name])
        assert optimizer.enable_zero(stage=stage, shard_min_size=2) is optimizer
        found = train(model, optimizer, x_sbp)
        assert_same(found, wanted)
        assert [w.sbp for w in model.parameters()] == [w.sbp for w in plain.parameters()]


def test_two_ranks_give_the_same_bits(world):
    results = []
    for stage in (None, 1, 2):
        model = fresh("two")
        optimizer = made("AdamW", model)
        if stage is not None:
            optimizer.enable_zero(stage=stage, shard_min_size=1)
        results.append(train(model, optimizer, "(S0)"))
    for losses, values in results[1:]:
        assert losses == results[0][0]
        assert all(np.array_equal(values[name], value) for name, value in results[0][1].items())


@pytest.mark.parametrize("stage", [1, 2])
def test_each_rank_keeps_its_part(stage, world):
    model = fresh("three")
    optimizer = made("Adam", model).enable_zero(stage=stage, shard_min_size=8)
    train(model, optimizer, "(S0)", steps=1)
    weight, bias, last = model.parameters()
    for param, sbp in ((weight, "(S0)"), (bias, "(B)"), (last, "(S0)")):
        state = optimizer.state[param]
        assert {short(state[key].sbp) for key in ("exp_avg", "exp_avg_sq")} == {sbp}
        assert short(param.sbp) == "(B)"
        assert short(param.grad.sbp) == (sbp if stage == 2 else "(B)")
    assert [len(part) for part in optimizer.state[weight]["exp_avg"].shards] == [3, 3, 2]


def test_bytes(world):
    n, size = 4, 64 * 64 * 4
    p = flow.placement("cpu", list(range(n)))
    part = size * (n - 1) // n
    kinds = {
        None: ({"all_reduce": 2 * part}, {}),
        1: ({"all_reduce": 2 * part}, {"all_gather": part}),
        2: ({"reduce_scatter": part}, {"all_gather": part}),
    }
    for stage, (reduced, gathered) in kinds.items():
        layer = nn.Linear(64, 64, bias=False).to_global(p, flow.sbp.broadcast)
        optimizer = made("AdamW", layer)
        if stage is not None:
            optimizer.enable_zero(stage=stage)
        loss = layer(flow.randn(8, 64, placement=p, sbp=flow.sbp.split(0))).square().sum()
        with flow.profiler.comm() as log:
            loss.backward()
            if stage == 2:
                assert {r.kind: r.received[0] for r in log.records} == reduced
            optimizer.step()
        assert {r.kind: r.received[0] for r in log.records} == reduced | gathered


@pytest.mark.parametrize("stage", [1, 2])
def test_several_batches(stage, world):
    plain, model = fresh("two"), fresh("two")
    wanted = train(plain, made("Adam", plain), "(S0)", micro_batches=3)
    optimizer = made("Adam", model).enable_zero(stage=stage, shard_min_size=1)
    assert_same(train(model, optimizer, "(S0)", micro_batches=3), wanted)


def test_it_can_be_switched_on_and_off(world):
    plain, model = fresh("two"), fresh("two")
    wanted = [
        train(plain, optimizer, "(S0)") for optimizer in [made("Adam", plain)] for _ in "1234"
    ]
    optimizer = made("Adam", model)
    for number, settings in enumerate(
        ({"mode": False}, {"stage": 2}, {"stage": 1}, {"mode": False})
    ):
        optimizer.enable_zero(**settings, shard_min_size=1)
        assert_same(train(model, optimizer, "(S0)"), wanted[number])
    state = optimizer.state[model[0].weight]["exp_avg"]
    assert short(state.sbp) == short(model[0].weight.grad.sbp) == "(B)"


def test_the_state_dict_is_that_without_zero(world):
    plain, model = fresh("two"), fresh("two")
    optimizers = [made("Adam", plain), made("Adam", model).enable_zero(shard_min_size=1)]
    train(plain, optimizers[0], "(S0)"), train(model, optimizers[1], "(S0)")
    states = [copy.deepcopy(optimizer.state_dict()) for optimizer in optimizers]
    assert states[0]["param_groups"] == states[1]["param_groups"]
    for number, entry in states[0]["state"].items():
        for key, value in entry.items():
            other = states[1]["state"][number][key]
            assert np.array_equal(np.asarray(value), np.asarray(other))
    for optimizer, state in zip(optimizers, reversed(states), strict=True):
        optimizer.load_state_dict(state)
    assert_same(train(model, optimizers[1], "(S0)"), train(plain, optimizers[0], "(S0)"))


def test_clipping_a_scaler_views_and_new_groups(world):
    results = []
    for stage in (None, 1, 2):
        model = fresh("two")
        first, rest = [model[0].weight], [model[0].bias, model[2].weight]
        optimizer = flow.optim.SGD([{"params": first, "clip_grad_max_norm": 0.01}], lr=0.5)
        if stage is not None:
            optimizer.enable_zero(stage=stage, shard_min_size=1)
        optimizer.add_param_group({"params": rest})
        view = model[0].weight.detach()[0]
        x = flow.ones(4, 5, dtype=flow.float64, placement=view.placement, sbp=flow.sbp.split(0))
        for _ in range(2):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.clip_grad()
            optimizer.step()
        assert np.array_equal(view.numpy(), model[0].weight.numpy()[0])
        results.append([w.numpy() for w in model.parameters()])
    for found in results[1:]:
        for mine, right in zip(found, results[0], strict=True):
            np.testing.assert_allclose(mine, right, rtol=1e-10)


def test_local_parameters_and_one_rank_stay_as_they_are(world):
    layer = nn.Linear(4, 4)
    optimizer = made("Adam", layer).enable_zero(shard_min_size=1)
    layer(flow.ones(2, 4)).sum().backward()
    optimizer.step()
    assert optimizer.state[layer.weight]["exp_avg"].is_local


def test_in_a_graph_its_own_setting_counts(world):
    model = fresh("two")
    optimizer = made("Adam", model).enable_zero(shard_min_size=1)
    plain = fresh("two")

    x = flow.randn(
        4, 5, dtype=flow.float64, placement=flow.placement("cpu", [0, 1]), sbp=parse("(S0)")
    )
    for graph in (SquareMean(model, optimizer), SquareMean(plain, made("Adam", plain))):
        graph(x), graph(x)
    for mine, right in zip(model.parameters(), plain.parameters(), strict=True):
        np.testing.assert_allclose(mine.numpy(), right.numpy(), rtol=1e-10)


def test_what_is_refused(world):
    model = fresh("two")
    optimizer = made("Adam", model)
    with pytest.raises(OnefoldValueError, match=r"stage must be one of 1 to 2, but got 3; stage 3"):
        optimizer.enable_zero(stage=3)
    with pytest.raises(OnefoldTypeError, match="mode must be True or False"):
        optimizer.enable_zero(1)
    with pytest.raises(OnefoldValueError, match="shard_min_size must be at least 1"):
        optimizer.enable_zero(shard_min_size=0)
    with pytest.raises(OnefoldValueError, match="LBFGS moves all parameters together"):
        flow.optim.LBFGS(model.parameters()).enable_zero()


def _launched(stage):
    model = fresh("two")
    optimizer = made("AdamW", model).enable_zero(stage=stage, shard_min_size=1)
    found = train(model, optimizer, "(S0)", micro_batches=2)
    held = sum(optimizer.state[w]["exp_avg"].shards[0].numel() for w in model.parameters())
    return found, held


@pytest.mark.parametrize("stage", [1, 2])
def test_two_processes(stage, world):
    model = fresh("two")
    wanted = train(model, made("AdamW", model), "(S0)", micro_batches=2)
    whole = sum(w.numel() for w in model.parameters())
    for found, held in run_ranks(2, _launched, stage):
        assert_same(found, wanted)
        assert held == whole // 2
