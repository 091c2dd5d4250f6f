"""What every optimizer shares: groups, closures, state, loading, clipping, and the errors."""

import copy

import numpy as np
import pytest
import torch
from launched import run_ranks
from training import LAYOUTS, assert_same_training, gradients, parameters

import onefold as flow
from onefold.engine.sbp import parse
from onefold.errors import OnefoldTypeError, OnefoldValueError
from onefold.testing.sample_checks import value_of

KINDS = [
    (flow.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (flow.optim.AdamW, {"lr": 0.1, "amsgrad": True}),
]


def run(optimizer, params, layout, steps):
    for step in steps:
        for param, grad in zip(params, gradients(step, layout, params), strict=True):
            param.grad = grad
        optimizer.step()


def values(params):
    return [value_of(param.detach()).clone() for param in params]


def equal(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_check_of_training_can_fail(world, monkeypatch):
    real = flow.optim.SGD.step
    monkeypatch.setattr(flow.optim.SGD, "step", lambda self: (real(self), real(self)))
    with pytest.raises(AssertionError, match="parameter 0 after step 0"):
        assert_same_training("SGD", {"lr": 0.1}, "split", torch.float64)


def test_groups_have_options_of_their_own(world):
    ours = parameters("split")
    theirs = [value_of(p.detach()).clone().requires_grad_() for p in ours]
    found = flow.optim.SGD(
        [{"params": ours[:2]}, {"params": ours[2:], "lr": 0.5, "momentum": 0.5}], lr=0.1
    )
    wanted = torch.optim.SGD(
        [{"params": theirs[:2]}, {"params": theirs[2:], "lr": 0.5, "momentum": 0.5}], lr=0.1
    )
    for step in range(3):
        for mine, right, grad in zip(ours, theirs, gradients(step, "split", ours), strict=True):
            mine.grad, right.grad = grad, value_of(grad)
        found.step()
        wanted.step()
    for mine, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(value_of(mine.detach()), right.detach())
    found.param_groups[0]["lr"] = 0.0
    before = ours[0].numpy().copy()
    found.step()
    assert np.array_equal(ours[0].numpy(), before)


def test_lr_scale(world):
    params = [flow.nn.Parameter(flow.ones(2)) for _ in range(2)]
    groups = [{"params": params[:1], "lr_scale": 0.1}, {"params": params[1:]}]
    optimizer = flow.optim.SGD(groups, lr=1.0)
    for param in params:
        param.grad = flow.ones(2)
    optimizer.step()
    assert params[0].tolist() == pytest.approx([0.9, 0.9]) and params[1].tolist() == [0.0, 0.0]


def test_adding_a_group(world):
    params = parameters("broadcast")
    optimizer = flow.optim.SGD(params[:1], lr=0.1)
    optimizer.add_param_group({"params": params[1], "lr": 0.2})
    optimizer.add_param_group({"params": (p for p in params[2:])})
    assert [len(g["params"]) for g in optimizer.param_groups] == [1, 1, 3]
    assert [g["lr"] for g in optimizer.param_groups] == [0.1, 0.2, 0.1]
    assert "Parameter Group 2" in repr(optimizer) and "lr: 0.2" in repr(optimizer)


def test_zero_grad(world):
    params = parameters("mesh")
    optimizer = flow.optim.SGD(params)
    for set_to_none in (False, True):
        for param, grad in zip(params, gradients(0, "mesh", params), strict=True):
            param.grad = grad
        optimizer.zero_grad(set_to_none)
        if set_to_none:
            assert all(param.grad is None for param in params)
        else:
            assert all(value_of(param.grad).eq(0).all() for param in params)
    optimizer.zero_grad()


def test_a_closure_runs_with_gradients(world):
    w = flow.nn.Parameter(flow.ones(2))
    optimizer = flow.optim.SGD([w], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    with flow.no_grad():
        assert optimizer.step(closure).item() == 2.0
    assert w.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_step_boxes_the_gradients_and_keeps_them(layout, world):
    params = parameters(layout)
    optimizer = flow.optim.SGD(params)
    grads = gradients(0, layout, params)
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad
    optimizer.step()
    for param, grad in zip(params, grads, strict=True):
        assert param.grad.meta is param.meta
        torch.testing.assert_close(value_of(param.grad), value_of(grad))


@pytest.mark.parametrize("kind", KINDS, ids=["SGD", "AdamW"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_training_goes_on_from_a_state(kind, layout, world):
    """Also in another layout than that of the optimizer which made it."""
    make, options = kind
    params = parameters(layout)
    optimizer = make(params, **options)
    run(optimizer, params, layout, range(3))
    state = optimizer.state_dict()
    saved = values(params)
    kept = copy.deepcopy(_plain(state))
    run(optimizer, params, layout, range(3, 6))
    wanted = values(params)
    assert _same(_plain(state), kept), "a state is a snapshot"

    others = [layout] if layout == "local" else [layout, "broadcast", "nested"]
    for other in others:
        duplicates = parameters(other)
        with flow.no_grad():
            for duplicate, value in zip(duplicates, saved, strict=True):
                place = (
                    {}
                    if duplicate.is_local
                    else {"placement": duplicate.placement, "sbp": flow.sbp.broadcast}
                )
                if duplicate.is_global:
                    place["sbp"] = (flow.sbp.broadcast,) * duplicate.placement.ndim
                duplicate.copy_(flow.tensor(value, **place))
        again = make(duplicates, lr=99.0)
        again.load_state_dict(state)
        assert again.param_groups[0]["lr"] == 0.1
        run(again, duplicates, other, range(3, 6))
        for found, right in zip(values(duplicates), wanted, strict=True):
            torch.testing.assert_close(found, right)
    assert _same(_plain(state), kept), "training from a state leaves the state alone"


def _plain(state):
    return {
        n: {k: value_of(v).clone() if isinstance(v, flow.Tensor) else v for k, v in entry.items()}
        for n, entry in state["state"].items()
    }


def _same(one, other):
    return all(
        torch.equal(v, other[n][k]) if isinstance(v, torch.Tensor) else v == other[n][k]
        for n, entry in one.items()
        for k, v in entry.items()
    )


def test_torch_tensors_and_arrays_load_as_logical_values(world):
    params = parameters("split")
    theirs = [value_of(p.detach()).clone().requires_grad_() for p in params]
    wanted = torch.optim.AdamW(theirs, lr=0.1, weight_decay=0.0)
    for param in theirs:
        param.grad = torch.ones_like(param)
    wanted.step()
    state = wanted.state_dict()
    entries = {n: {**e, "step": int(e["step"])} for n, e in state["state"].items()}
    found = flow.optim.AdamW(params)
    found.load_state_dict({"state": entries, "param_groups": state["param_groups"]})
    for mine, right in zip(params, theirs, strict=True):
        state = found.state[mine]["exp_avg"]
        assert state.meta is mine.meta
        torch.testing.assert_close(value_of(state), torch.full_like(right, 0.1).detach())


def test_loading_is_all_or_nothing(world):
    params = parameters("split")
    optimizer = flow.optim.SGD(params, lr=0.1, momentum=0.9)
    run(optimizer, params, "split", range(2))
    good = optimizer.state_dict()
    before = _plain(good)
    other = flow.optim.SGD(parameters("split")[:2], momentum=0.9).state_dict()
    wrong = {**good, "state": {**good["state"], 4: {"momentum_buffer": np.ones((9, 9))}}}
    local = {**good, "state": {**good["state"], 4: {"momentum_buffer": flow.zeros(1, 3)}}}
    for bad, text in [
        (other, r"groups of \[5\] parameters, the state has \[2\]"),
        (wrong, "size mismatch"),
        (local, "size mismatch"),
    ]:
        with pytest.raises((ValueError, TypeError, RuntimeError), match=text):
            optimizer.load_state_dict(bad)
        assert _same(_plain(optimizer.state_dict()), before)
        assert optimizer.param_groups[0]["lr"] == 0.1


def test_clip_grad(world):
    """Each group that asks for it is clipped by its own norm."""
    params = [flow.nn.Parameter(flow.zeros(4)) for _ in range(3)]
    for param in params:
        param.grad = flow.full((4,), 3.0)
    optimizer = flow.optim.SGD(
        [
            {"params": params[:1], "clip_grad_max_norm": 1.0},
            {"params": params[1:2], "clip_grad_max_norm": 1.0, "clip_grad_norm_type": 1.0},
            {"params": params[2:]},
        ]
    )
    optimizer.clip_grad()
    assert params[0].grad.tolist() == pytest.approx([0.5] * 4, rel=1e-5)
    assert params[1].grad.tolist() == pytest.approx([0.25] * 4, rel=1e-5)
    assert params[2].grad.tolist() == [3.0] * 4
    params[0].grad = flow.full((4,), float("inf"))
    with pytest.raises(RuntimeError, match="cannot be clipped"):
        optimizer.clip_grad(error_if_nonfinite=True)


def test_memory_that_others_see_is_not_written(world):
    for place in ({}, {"placement": flow.placement("cpu", [0, 1]), "sbp": flow.sbp.broadcast}):
        data = flow.ones(3, 2, **place)
        w = flow.nn.Parameter(data)
        view, alias, grad = w.t(), w.detach(), flow.ones(3, 2, **place)
        optimizer = flow.optim.SGD([w], lr=0.5, momentum=0.9)
        for _ in range(2):
            w.grad = grad
            optimizer.step()
        assert w.numpy().max() < 0.5
        for other in (data, grad):
            assert value_of(other).eq(1).all()
        assert torch.equal(value_of(view.detach().t()), value_of(w.detach()))
        assert torch.equal(value_of(alias), value_of(w.detach()))
        if place:
            assert torch.equal(w.shards[0], w.shards[1])


@pytest.mark.parametrize("layout", ["local", "split", "zero"])
def test_views_of_parameters_follow_the_updates_of_graphs(layout, world):
    place = {"placement": flow.placement("cpu", [0, 1]), "sbp": flow.sbp.split(0)}
    if layout == "zero":
        place["sbp"] = flow.sbp.broadcast

    class Train(flow.nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.5, momentum=0.9))
            self.config.enable_zero(layout == "zero", stage=2, shard_min_size=1)

        def build(self, x):
            loss = self.model(x).sum()
            loss.backward()
            return loss

    x = flow.ones(4, 4, **({} if layout == "local" else {**place, "sbp": flow.sbp.broadcast}))
    model = flow.nn.Linear(4, 4, bias=False, **({} if layout == "local" else place))
    before = model.weight.numpy().copy()
    views = model.weight.detach().t(), model.weight.data, model.weight.data[1:3, 2]
    graph = Train(model)
    for number in range(1, 4):
        graph(x)
        now = model.weight.numpy()
        assert not np.array_equal(now, before)
        for view, wanted in zip(views, (now.T, now, now[1:3, 2]), strict=True):
            np.testing.assert_array_equal(view.numpy(), wanted)
        if number == 2:
            views[2].fill_(7)
            assert (model.weight.numpy()[1:3, 2] == 7).all()


def test_parameters_and_gradients_in_any_memory_order(world):
    base = torch.arange(12.0).reshape(3, 4)
    w = flow.nn.Parameter(flow.from_torch(base.t()))
    t = base.t().clone().requires_grad_()
    grad = torch.arange(12.0).reshape(4, 3)
    for make in ("SGD", "AdamW"):
        w.grad, t.grad = flow.from_torch(grad), grad.clone()
        getattr(flow.optim, make)([w], lr=0.1, weight_decay=0.1).step()
        getattr(torch.optim, make)([t], lr=0.1, weight_decay=0.1).step()
        torch.testing.assert_close(w.detach().to_torch(), t.detach())
    assert base.tolist() == torch.arange(12.0).reshape(3, 4).tolist()


def test_dtypes_mix(world):
    params = [
        flow.nn.Parameter(flow.ones(2, dtype=d))
        for d in (flow.float32, flow.bfloat16, flow.float64)
    ]
    for make in (flow.optim.SGD, flow.optim.AdamW):
        optimizer = make(params, lr=0.25)
        for param in params:
            param.grad = flow.ones_like(param)
        optimizer.step()
    for param in params:
        assert param.tolist() == pytest.approx([0.5, 0.5], rel=1e-2)


BAD = [
    (flow.optim.SGD, OnefoldTypeError, r"but got one Parameter; write \[tensor\]"),
    (lambda w: flow.optim.SGD({w}), OnefoldTypeError, "but got one set"),
    (lambda w: flow.optim.SGD([]), OnefoldValueError, "empty parameter list"),
    (lambda w: flow.optim.SGD([{"params": []}]), OnefoldValueError, "empty parameter list"),
    (lambda w: flow.optim.SGD([{"lr": 1.0}]), OnefoldTypeError, "with the key 'params'"),
    (lambda w: flow.optim.SGD([{"params": {w}}]), OnefoldTypeError, "but got a set"),
    (
        lambda w: flow.optim.SGD([w, 3]),
        OnefoldTypeError,
        "can only optimize Tensors, but one of the params is int",
    ),
    (lambda w: flow.optim.SGD([torch.ones(1)]), OnefoldTypeError, "can only optimize Tensors"),
    (lambda w: flow.optim.SGD([w * 2]), OnefoldValueError, "can't optimize a non-leaf Tensor"),
    (
        lambda w: flow.optim.SGD([w, w]),
        OnefoldValueError,
        "some parameters appear in more than one",
    ),
    (
        lambda w: flow.optim.SGD([w]).add_param_group({"params": [w]}),
        OnefoldValueError,
        "more than one parameter group",
    ),
    (lambda w: flow.optim.Optimizer([w], {}).step(), NotImplementedError, "needs _update"),
]


@pytest.mark.parametrize("index", range(len(BAD)))
def test_bad_parameters(index, world):
    call, kind, text = BAD[index]
    w = flow.nn.Parameter(flow.ones(2))
    w.grad = flow.ones(2)
    with pytest.raises(kind, match=text):
        call(w)
    assert w.tolist() == [1, 1]


def _launched(sbp):
    p = flow.placement("cpu", [0, 1])
    model = flow.nn.Linear(4, 3)
    with flow.no_grad():
        model.weight.copy_(flow.arange(12, dtype=flow.float32).reshape(3, 4) / 10)
        model.bias.zero_()
    model.to_global(p, flow.sbp.broadcast)
    model.to_global(sbp=lambda name, t: parse(sbp))
    optimizer = flow.optim.AdamW(model.parameters(), lr=0.1)
    rank = flow.env.get_rank()
    x = flow.full((2, 4), 1.0 + rank).to_global(p, flow.sbp.split(0))
    for _ in range(3):
        loss = (model(x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item(), model.weight.numpy().tolist()


def test_data_parallel_training_is_single_device_training():
    t = torch.nn.Linear(4, 3)
    with torch.no_grad():
        t.weight.copy_(torch.arange(12.0).reshape(3, 4) / 10)
        t.bias.zero_()
    optimizer = torch.optim.AdamW(t.parameters(), lr=0.1, weight_decay=0.0)
    x = torch.tensor([[1.0] * 4] * 2 + [[2.0] * 4] * 2)
    for _ in range(3):
        loss = (t(x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for sbp in ("(B)", "(S0)"):
        for value, weight in run_ranks(2, _launched, sbp):
            assert value == pytest.approx(loss.item(), rel=1e-5)
            torch.testing.assert_close(
                torch.tensor(weight), t.weight.detach(), rtol=1e-5, atol=1e-5
            )


@pytest.mark.parametrize("of_state", [False, True])
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_replicas_may_be_one_tensor_or_several(kind, options, of_state, world):
    pair = flow.placement("cpu", [0, 1])
    found = []
    for apart in (False, True):
        param = flow.nn.Parameter(flow.ones(3, placement=pair, sbp=flow.sbp.broadcast))
        optimizer = kind([param], **options)
        for step in range(3):
            param.grad = flow.full((3,), step + 1.0, placement=pair, sbp=flow.sbp.broadcast)
            optimizer.step()
            if apart and step == 0:
                for x in optimizer.state[param].values() if of_state else [param]:
                    if isinstance(x, flow.Tensor):
                        x.shards = tuple(part.clone() for part in x.shards)
        state = [x for x in optimizer.state[param].values() if isinstance(x, flow.Tensor)]
        for x in [param, *state]:
            torch.testing.assert_close(x.shards[0], x.shards[1], rtol=0, atol=0)
        found.append(values([param, *state]))
    for one, several in zip(*found, strict=True):
        torch.testing.assert_close(several, one, rtol=0, atol=0)
