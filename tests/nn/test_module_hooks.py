"""Hooks of a module's call, before and after forward and at its gradients, against torch's."""

from itertools import pairwise

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.errors import OnefoldRuntimeError
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

LIBS = (flow, torch)


def rows(value):
    """Nested tuples of tensors as lists, to be compared."""
    if isinstance(value, tuple):
        return tuple(rows(part) for part in value)
    return value.tolist() if hasattr(value, "tolist") else value


class Both:
    """Two inputs, one keyword and two results."""

    def forward(self, x, y, scale=1.0):
        return x * y * scale, x + y


def module(lib):
    return type("Both", (Both, lib.nn.Module), {})()


def forward_events(lib):
    layer, seen = module(lib), []

    def before(module, args, kwargs):
        seen.append(("before", rows(args), kwargs))
        return (args[0] * 2, args[1]), {"scale": 3.0}

    def after(module, args, kwargs, result):
        seen.append(("after", rows(args), kwargs, rows(result)))
        return result[0]

    layer.register_forward_pre_hook(before, with_kwargs=True)
    layer.register_forward_pre_hook(lambda m, args: seen.append(rows(args)), prepend=True)
    handle = layer.register_forward_hook(after, with_kwargs=True)
    layer.register_forward_hook(lambda m, args, y: seen.append(rows(y)), prepend=True)
    seen.append(rows(layer(lib.ones(2), lib.ones(2), scale=5.0)))
    handle.remove()
    seen.append(rows(layer(lib.ones(2), lib.ones(2))))
    return seen


def test_forward_hooks(world):
    assert forward_events(flow) == forward_events(torch)


def always_called(lib):
    layer, seen = module(lib), []
    layer.register_forward_hook(lambda m, args, y: seen.append("no"))
    layer.register_forward_hook(lambda m, args, y: seen.append(y), always_call=True)
    with pytest.raises(TypeError):
        layer(lib.ones(2), None)
    layer(lib.ones(1), lib.ones(1))
    return [rows(one) for one in seen]


def test_a_hook_that_is_always_called(world):
    assert always_called(flow) == always_called(torch)
    for lib in LIBS:
        layer = module(lib)
        layer.register_forward_hook(lambda *args: 1 / 0, always_call=True)
        with pytest.warns(UserWarning, match="silenced as another error"), pytest.raises(TypeError):
            layer(lib.ones(2), None)


def test_a_pre_hook_that_returns_no_pair(world):
    for lib in LIBS:
        layer = module(lib)
        layer.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True)
        with pytest.raises(RuntimeError, match="must return None or a tuple of"):
            layer(lib.ones(1), lib.ones(1))


def backward_events(lib, change, needs=(True, True)):
    """What hooks see of gradients, and the gradients that they leave."""
    layer, seen = module(lib), []

    def pre(module, grads):
        seen.append(("pre", rows(grads)))
        return tuple(None if g is None else g * 2 for g in grads) if change else None

    def full(module, inputs, outputs):
        seen.append(("full", rows(inputs), rows(outputs)))
        return tuple(None if g is None else g * 3 for g in inputs) if change else None

    layer.register_full_backward_pre_hook(pre)
    handle = layer.register_full_backward_hook(full)
    layer.register_full_backward_hook(
        lambda m, inputs, outputs: seen.append(("first", rows(inputs))), prepend=True
    )
    x, y = (lib.tensor([1.0, 2.0], requires_grad=need) for need in needs)
    for used in (0, 1, None):
        result = layer(x, y, scale=2.0)
        total = result[0] * result[1] if used is None else result[used]
        total.sum().backward()
        seen.append([None if t.grad is None else t.grad.tolist() for t in (x, y)])
    handle.remove()
    layer(x, y)[0].sum().backward()
    return seen


@pytest.mark.parametrize("change", [False, True])
@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
def test_full_backward_hooks(change, needs, world):
    assert backward_events(flow, change, needs) == backward_events(torch, change, needs)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")  # torch's
def test_where_no_input_needs_a_gradient(world):
    found = []
    for lib in LIBS:
        layer, seen = lib.nn.Linear(2, 1), []
        layer.register_full_backward_hook(lambda m, i, o, seen=seen: seen.append((i, rows(o))))
        layer(lib.ones(3, 2)).sum().backward()
        assert layer.weight.grad.tolist() == [[3, 3]]
        found.append(list(seen))
        layer.register_full_backward_hook(lambda m, i, o: (o[0],))
        with pytest.raises(RuntimeError, match="should always return None"):
            layer(lib.ones(3, 2)).sum().backward()
    assert found[0] == found[1] == [((None,), ([[1.0], [1.0], [1.0]],))]


def test_wrong_numbers_of_gradients(world):
    for lib in LIBS:
        x = lib.ones(2, requires_grad=True)
        for register in ("register_full_backward_hook", "register_full_backward_pre_hook"):
            layer = module(lib)
            getattr(layer, register)(lambda m, grads, *rest: (grads[0],))
            with pytest.raises(RuntimeError, match="returned an invalid number of grad_"):
                layer(x, x)[0].sum().backward()
    layer = module(flow)
    layer.register_full_backward_pre_hook(lambda m, grads: grads[:1])
    x = flow.ones(2, requires_grad=True)
    loss = layer(x, x)[0].sum()
    with pytest.raises(OnefoldRuntimeError, match="got 1, but expected 2"):
        loss.backward()


def test_without_gradients_hooks_do_nothing(world):
    layer, seen = module(flow), []
    layer.register_full_backward_hook(lambda *args: seen.append(1))
    with flow.no_grad():
        layer(flow.ones(2), flow.ones(2))
    assert not layer(flow.ones(2), flow.ones(2))[0].requires_grad and seen == []


@pytest.mark.parametrize("sbp", [flow.sbp.split(0), flow.sbp.broadcast])
def test_gradients_of_global_tensors(sbp, world):
    value = torch.arange(8.0).reshape(4, 2).double()
    p = flow.placement("cpu", [0, 1])
    results = []
    for make in (make_local, lambda x: make_global(x, p, (sbp,))):
        layer = flow.nn.Linear(2, 3).double()
        layer.load_state_dict({"weight": torch.arange(6.0).reshape(3, 2), "bias": torch.ones(3)})
        if make is not make_local:
            layer.to_global(p, flow.sbp.broadcast)
        seen = []
        layer.register_full_backward_hook(
            lambda m, i, o, seen=seen: seen.extend(value_of(g) for g in (*i, *o))
        )
        x = make(value.clone()).requires_grad_()
        (layer(x) ** 2).sum().backward()
        results.append([*seen, value_of(x.grad)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_hooks_in_a_graph(world):
    """They are part of what is captured; another set of hooks is another program."""
    layer = flow.nn.Linear(2, 2)
    x = flow.ones(3, 2)

    class Graph(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = layer
            self.add_optimizer(flow.optim.SGD(layer.parameters(), lr=1.0))

        def build(self, x):
            loss = self.layer(x).sum()
            loss.backward()
            return loss

    graph, values = Graph(), [layer.bias.tolist()]
    for _ in range(2):
        graph(x)
        values.append(layer.bias.tolist())
        layer.register_full_backward_pre_hook(lambda m, grads: (grads[0] * 2,))
    steps = [[b - a for a, b in zip(*both, strict=True)] for both in pairwise(values)]
    assert steps[0] == pytest.approx([-3, -3]) and steps[1] == pytest.approx([-6, -6])


def calls_of_hooks_of_all_modules(module):
    """The calls of such hooks, results and gradients with them, and a result without them."""
    nn, hooks, calls = module.nn, module.nn.modules.module, []

    def seen(m, *given):
        calls.append((type(m).__name__, len(given)))

    def doubled(m, args, y):
        return y * 2 if isinstance(m, nn.Tanh) else None

    def tripled(m, dx, dy):
        return tuple(None if d is None else d * 3 for d in dx)

    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Tanh()))
    with module.no_grad():
        net[0].weight.copy_(module.tensor([[1.0, 2.0], [3.0, 4.0]]))
        net[0].bias.zero_()
    net[0].register_forward_hook(lambda m, args, y: calls.append("own") or y * 0.5)
    handles = [
        hooks.register_module_forward_pre_hook(seen),
        hooks.register_module_forward_hook(seen, with_kwargs=True),
        hooks.register_module_forward_hook(seen, always_call=True),
        hooks.register_module_forward_hook(doubled),
        hooks.register_module_full_backward_pre_hook(seen),
        hooks.register_module_full_backward_hook(tripled),
    ]
    x = module.tensor([[0.1, 0.2]], requires_grad=True)
    y = net(x)
    y.sum().backward()
    with pytest.raises(RuntimeError):
        net(module.ones(1, 5))
    for handle in handles:
        handle.remove()
    return calls, [each.tolist() for each in (y, x.grad, net(x))]


def test_hooks_of_all_modules(world):
    (calls, values), (wanted, theirs) = map(calls_of_hooks_of_all_modules, LIBS)
    assert calls == wanted
    np.testing.assert_allclose(values, theirs, rtol=1e-6)
    assert not flow.nn.Linear(2, 2)._has_hooks
