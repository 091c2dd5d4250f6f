"""Optimizers as programs for torch use and define them: names, hooks, states, rules of users."""

import pickle
from io import BytesIO

import pytest
import torch

import onefold as flow
from onefold.errors import OnefoldRuntimeError, OnefoldValueError


def trained(lib, steps=3, make=None, **options):
    """A layer with fixed weights, and its optimizer after some steps."""
    layer = lib.nn.Linear(2, 1)
    with lib.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.fill_(0.25)
    make = make or (lambda layer: lib.optim.AdamW(layer.named_parameters(), lr=0.1, **options))
    optimizer = make(layer)
    for _ in range(steps):
        optimizer.zero_grad()
        (layer(lib.ones(3, 2)) ** 2).sum().backward()
        optimizer.step()
    return layer, optimizer


def values(layer):
    return [param.detach().tolist() for param in layer.parameters()]


# Names of parameters.


@pytest.mark.parametrize("in_groups", [False, True])
def test_named_parameters(in_groups, world):
    def make(lib):
        def made(layer):
            named = list(layer.named_parameters())
            groups = [{"params": named[:1], "lr": 0.5}, {"params": named[1:]}]
            given = groups if in_groups else layer.named_parameters()
            return lib.optim.AdamW(given, lr=0.1, weight_decay=0.01)

        return made

    (layer, found), (right, wanted) = trained(flow, 3, make(flow)), trained(torch, 3, make(torch))
    torch.testing.assert_close(values(layer), values(right))
    names = [[group["param_names"] for group in each.param_groups] for each in (found, wanted)]
    assert names[0] == names[1] == ([["weight"], ["bias"]] if in_groups else [["weight", "bias"]])
    saved, theirs = found.state_dict(), wanted.state_dict()
    for mine, other in zip(saved["param_groups"], theirs["param_groups"], strict=True):
        assert mine["param_names"] == other["param_names"] and mine["params"] == other["params"]
    assert saved["state"].keys() == theirs["state"].keys()
    assert "param_names" in repr(found)


def test_loading_names():
    """Loaded names replace those that are there; without any these stay."""
    layer, optimizer = trained(flow)
    saved = optimizer.state_dict()
    saved["param_groups"][0]["param_names"] = ["a", "b"]
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["param_names"] == ["a", "b"]
    plain = flow.optim.AdamW(layer.parameters(), lr=0.1)
    optimizer.load_state_dict(plain.state_dict())
    assert optimizer.param_groups[0]["param_names"] == ["a", "b"]
    _, theirs = trained(torch)
    optimizer.load_state_dict(theirs.state_dict())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]


def test_all_or_none_have_names():
    first, second = (flow.nn.Parameter(flow.ones(2)) for _ in range(2))
    for mixed in ([first, ("b", second)], [("a", first), second]):
        with pytest.raises(OnefoldValueError, match=r"with/without names.*1 of the 2 params"):
            flow.optim.SGD(mixed, lr=0.1)
    named = flow.optim.SGD([("a", first)], lr=0.1)
    with pytest.raises(OnefoldValueError, match="cannot add param group without names"):
        named.add_param_group({"params": [second]})
    plain = flow.optim.SGD([first], lr=0.1)
    with pytest.raises(OnefoldValueError, match="cannot add param group with names"):
        plain.add_param_group({"params": [("b", second)]})
    assert len(named.param_groups) == len(plain.param_groups) == 1


def test_a_graph_takes_named_parameters(world):
    class Train(flow.nn.Graph):
        def __init__(self, layer, optimizer):
            super().__init__()
            self.layer = layer
            self.add_optimizer(optimizer)

        def build(self, x):
            loss = (self.layer(x) ** 2).sum()
            loss.backward()
            return loss

    layer, optimizer = trained(flow, 0)
    graph = Train(layer, optimizer)
    for _ in range(3):
        graph(flow.ones(3, 2))
    torch.testing.assert_close(values(layer), values(trained(flow)[0]))
    graph.load_state_dict(graph.state_dict())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]


# The state is a dict of dicts.


def test_the_state_has_an_empty_dict_for_what_is_not_there():
    layer, optimizer = trained(flow, 0)
    before = optimizer.state_dict()
    assert optimizer.state[layer.weight] == {} and layer.weight in optimizer.state
    assert optimizer.state_dict() == before and before["state"] == {}
    other, _ = trained(flow, 0)
    optimizer.load_state_dict(trained(flow)[1].state_dict())
    assert optimizer.state[other.weight] == {}  # still, after loading
    (layer(flow.ones(3, 2)) ** 2).sum().backward()
    optimizer.step()
    assert set(optimizer.state_dict()["state"]) == {0, 1}
    assert type(pickle.loads(pickle.dumps(optimizer.state))) is type(optimizer.state)


def momentum_of_users(lib):
    """An optimizer in torch's style, with keys of its own in the state."""

    class Momentum(lib.optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, {"lr": lr})

        @lib.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for param in group["params"]:
                    state = self.state[param]
                    if len(state) == 0:
                        state["step"] = 0
                        state["mean"] = lib.zeros_like(param)
                    state["step"] += 1
                    state["mean"].mul_(0.9).add_(param.grad, alpha=0.1)
                    param.add_(state["mean"], alpha=-group["lr"])
            self.state["calls"] = {"count": self.state["calls"].get("count", 0) + 1}

    return lambda layer: Momentum(layer.named_parameters())


def test_an_optimizer_of_users(world):
    layer, found = trained(flow, 3, momentum_of_users(flow))
    right, wanted = trained(torch, 3, momentum_of_users(torch))
    torch.testing.assert_close(values(layer), values(right))
    saved, theirs = found.state_dict(), wanted.state_dict()
    assert list(saved["state"]) == list(theirs["state"]) == [0, 1, "calls"]
    assert saved["state"]["calls"] == {"count": 3}
    _, again = trained(flow, 0, momentum_of_users(flow))
    again.load_state_dict(saved)
    assert again.state["calls"] == {"count": 3} and again.state_dict()["state"][1]["step"] == 3


@pytest.mark.parametrize("finite", [True, False])
def test_a_scaler_steps_an_optimizer_of_users(finite):
    layer, optimizer = trained(flow, 0, momentum_of_users(flow))
    scaler = flow.amp.GradScaler(init_scale=8.0)
    before = values(layer)
    scaler.scale((layer(flow.ones(3, 2)) ** 2).sum()).backward()
    if not finite:
        layer.weight.grad.fill_(float("inf"))
    scaler.step(optimizer)
    scaler.update()
    wanted = values(trained(flow, 1, momentum_of_users(flow))[0]) if finite else before
    torch.testing.assert_close(values(layer), wanted)
    assert scaler.get_scale() == (8.0 if finite else 4.0)


# Hooks of steps.


@pytest.mark.parametrize("of_users", [False, True])
def test_step_hooks(of_users):
    seen = []
    for lib in (flow, torch):
        calls = []
        make = momentum_of_users(lib) if of_users else None
        _, optimizer = trained(lib, 1, make)
        before = optimizer.register_step_pre_hook(
            lambda opt, args, kwargs, calls=calls: calls.append(("pre", len(args), kwargs))
        )
        optimizer.register_step_post_hook(
            lambda opt, args, kwargs, calls=calls: calls.append(("post", args[0] is opt, kwargs))
        )
        optimizer.step()
        before.remove()
        optimizer.step(closure=None)
        seen.append(calls)
    assert seen[0] == seen[1] and len(seen[0]) == 3


def test_a_hook_may_change_the_arguments():
    _, optimizer = trained(flow, 1)
    handle = optimizer.register_step_pre_hook(lambda opt, args, kwargs: ((opt, lambda: 3.0), {}))
    assert optimizer.step() == 3.0
    handle.remove()
    optimizer.register_step_pre_hook(lambda opt, args, kwargs: 3)
    with pytest.raises(OnefoldRuntimeError, match=r"tuple of \(new_args, new_kwargs\), .* 3"):
        optimizer.step()


def test_hooks_of_a_scaled_step():
    layer, optimizer = trained(flow, 0)
    calls = []
    optimizer.register_step_pre_hook(lambda opt, args, kwargs: calls.append((len(args), kwargs)))
    scaler = flow.amp.GradScaler(init_scale=8.0)
    scaler.scale((layer(flow.ones(3, 2)) ** 2).sum()).backward()
    scaler.step(optimizer)
    assert calls == [(1, {})]


def test_a_graph_refuses_hooks():
    class Train(flow.nn.Graph):
        def __init__(self, layer, optimizer):
            super().__init__()
            self.layer = layer
            self.add_optimizer(optimizer)

        def build(self, x):
            loss = self.layer(x).sum()
            loss.backward()
            return loss

    layer, optimizer = trained(flow, 0)
    handle = optimizer.register_step_post_hook(lambda opt, args, kwargs: None)
    graph = Train(layer, optimizer)
    with pytest.raises(OnefoldRuntimeError, match=r"AdamW without a call of its .*remove them"):
        graph(flow.ones(3, 2))
    handle.remove()
    graph(flow.ones(3, 2))


def test_a_wrapper_of_another_optimizer():
    """Which never calls Optimizer.__init__, as many in the wild do."""

    def losses(lib):
        class Wrapper(lib.optim.Optimizer):
            def __init__(self, inner):
                self.inner = inner
                self.param_groups = inner.param_groups

            def step(self, closure=None):
                return self.inner.step(closure)

        w = lib.ones(2, requires_grad=True)
        optimizer = Wrapper(lib.optim.SGD([w], lr=0.1))
        for _ in range(2):
            (w * w).sum().backward()
            optimizer.step()
            optimizer.inner.zero_grad()
        return w.tolist()

    assert losses(flow) == losses(torch)


def factored(lib):
    """A user's optimizer whose state has other shapes than the parameters, and lists."""

    class Factored(lib.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        @lib.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if not state:
                        state["step"] = lib.tensor(0, dtype=lib.int64)
                        state["row"] = lib.zeros(p.shape[:1])
                        state["parts"] = [lib.zeros_like(p), lib.zeros(3)]
                        state["by name"] = {"total": lib.tensor(0.0)}
                    state["step"] += 1
                    state["row"].lerp_(p.grad.square().sum(tuple(range(1, p.ndim))), 0.5)
                    state["parts"][0].add_(p.grad)
                    state["parts"][1].add_(state["row"].sum())
                    state["by name"]["total"].add_(state["step"])
                    scale = state["parts"][1][0] + state["by name"]["total"]
                    p.sub_(group["lr"] * state["parts"][0] / scale)

    return lambda layer: Factored(layer.parameters())


def test_the_state_of_a_users_optimizer_is_loaded(world):
    found = []
    for lib in (torch, flow):
        layer, optimizer = trained(lib, 3, factored(lib))
        state = optimizer.state_dict()
        if lib is flow:
            file = BytesIO()
            flow.save(state, file)
            state = flow.load(file)
        again = factored(lib)(layer)
        again.load_state_dict(state)
        kept = [again.state[p] for p in layer.parameters()]
        assert [x["step"].dtype for x in kept] == [lib.int64] * 2
        for _ in range(2):
            again.zero_grad()
            (layer(lib.ones(3, 2)) ** 2).sum().backward()
            again.step()
        found.append([values(layer), [x["row"].tolist() for x in kept]])
    torch.testing.assert_close(found[1], found[0])


def test_the_state_of_a_users_optimizer_of_global_parameters(world):
    p = flow.placement("cpu", [0, 1])
    state = trained(flow, 3, factored(flow))[1].state_dict()
    layer = flow.nn.Linear(2, 1, placement=p, sbp=flow.sbp.broadcast)
    optimizer = factored(flow)(layer)
    optimizer.load_state_dict(state)
    kept = optimizer.state[layer.weight]
    assert kept["row"].placement == p and kept["row"].sbp == (flow.sbp.broadcast,)
    assert kept["parts"][0].sbp == layer.weight.sbp
    assert kept["row"].tolist() == state["state"][0]["row"].tolist()
