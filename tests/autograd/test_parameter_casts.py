"""Casts under autocast: each once, those of a model together, gradients in the dtype of weights."""

import gc
from unittest import mock

import pytest
import torch
from hypothesis import given, strategies as st

import onefold as flow
from onefold import nn
from onefold.engine import interpreter, parameter_casts
from onefold.kernels import optim_ref

LOW, WIDE = torch.bfloat16, torch.float32


class Ops(interpreter.Through):
    """Notes the names of ops."""

    def __init__(self):
        super().__init__(None)
        self.names = []

    def run(self, call, op, args):
        self.names.append(op.name)
        return super().run(call, op, args)


@pytest.fixture
def batches(monkeypatch):
    """How many parameters each launch casts, as where Triton does the work."""
    found = []

    def cast_each(parts, dtype):
        found.append(len(parts))
        return optim_ref.cast_each(parts, dtype)

    monkeypatch.setattr(parameter_casts, "uses_triton", lambda device_type: True)
    monkeypatch.setattr(parameter_casts, "pick", lambda reference, device_type: cast_each)
    return found


def step(*layers, x=None, inside=lambda: None):
    y = flow.ones(2, 3) if x is None else x
    with flow.autocast("cpu", LOW):
        for layer in layers:
            y = layer(y)
        inside()
        return y


def test_a_block_casts_together_what_the_last_one_cast(batches):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    wanted = step(*model)
    assert batches == []
    for _ in range(2):
        assert step(*model).tolist() == wanted.tolist()
    assert batches == [4, 4]
    with flow.no_grad():
        model[1].bias.copy_(flow.ones(3))
    assert step(*model).tolist() != wanted.tolist()


def test_parameters_part_that_one_block_does_not_use(batches):
    one, two = nn.Linear(3, 3), nn.Linear(3, 3)
    step(one, two)
    step(two)
    assert batches.pop() == 4
    for _ in range(2):
        step(one, two)
        step(two)
    assert batches == [2, 2, 2] * 2


def test_a_changed_parameter_is_cast_again_in_the_block(batches):
    layer, other = nn.Linear(3, 3), nn.Linear(3, 3)
    optimizer = flow.optim.SGD([*layer.parameters(), *other.parameters()], lr=0.5)
    step(layer, other).sum().backward()
    before = step(layer, other).tolist()
    after = step(layer, other, inside=optimizer.step).tolist()
    assert after == before  # of the parameters before the step
    del batches[:]

    def both(x):
        first = other(layer(x))
        optimizer.step()
        return first, other(layer(x))

    first, second = step(both, x=flow.ones(2, 3))
    assert batches == [4, 4] and first.tolist() != second.tolist()


def test_frozen_and_forgotten_parameters(batches):
    layers = [nn.Linear(3, 3) for _ in range(3)]
    step(*layers)
    layers[1].weight.requires_grad_(False)
    del layers[2]
    gc.collect()
    step(*layers)
    assert batches == [3]


def test_an_observer_sees_each_cast(batches):
    layer = nn.Linear(3, 3)
    step(layer)
    ops = Ops()
    with interpreter.using(ops):
        step(layer)
    assert batches == [] and ops.names.count("cast") == 3  # x too


@given(st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=8))
def test_groups_only_part(blocks):
    """After any blocks, parameters are together that were used in the same ones of them."""
    params = [flow.ones(2, requires_grad=True) for _ in range(5)]
    with (
        mock.patch.object(parameter_casts, "uses_triton", return_value=True),
        mock.patch.object(parameter_casts, "pick", lambda reference, device_type: reference),
    ):
        for block in blocks:
            casts = parameter_casts.ParameterCasts()
            for number in sorted(block):
                casts.of(params[number], params[number].node, LOW, observed=False)
            casts.end()
    groups = [param.node.cast_with for param in params]
    for i, one in enumerate(groups):
        used = [i in block for block in blocks]
        assert (one is None) == (not any(used))
        for j, other in enumerate(groups):
            alike = used == [j in block for block in blocks]
            assert (one is other and one is not None) == (alike and any(used))


def test_a_tensor_is_cast_once_for_several_products():
    layers = [nn.Linear(3, 3, bias=False) for _ in range(3)]
    ops = Ops()
    with interpreter.using(ops), flow.autocast("cpu", LOW):
        x = flow.ones(2, 3, requires_grad=True) * 2
        outputs = [layer(x) for layer in layers]
        assert ops.names.count("cast") == 4
        with flow.no_grad():
            x.mul_(2)
        assert layers[0](x).tolist() != outputs[0].tolist()


def test_views_follow_a_cast_tensor():
    layer = nn.Linear(3, 3, bias=False)
    with flow.autocast("cpu", LOW):
        x = flow.ones(2, 3, requires_grad=True) * 1
        row = x[0]
        before = layer(x).tolist()
        with flow.no_grad():
            row.add_(1)
        after = layer(x).tolist()
    assert after[0] != before[0] and after[1] == before[1]


def test_without_cache_each_use_is_a_cast():
    layer, ops = nn.Linear(3, 3, bias=False), Ops()
    with interpreter.using(ops), flow.autocast("cpu", LOW, cache_enabled=False):
        x = flow.ones(2, 3) * 2
        layer(x), layer(x)
    assert ops.names.count("cast") == 4


@pytest.mark.parametrize("shape", [(4, 3), (2, 4, 3)])
def test_gradients_of_weights_are_not_cast(shape):
    layer = nn.Linear(3, 3)
    with flow.autocast("cpu", LOW):
        y = layer(flow.ones(*shape))
    ops = Ops()
    with interpreter.using(ops):
        y.sum().backward()
    assert layer.weight.grad.dtype == layer.bias.grad.dtype == WIDE
    assert "cast" not in ops.names
    assert {"mm_tn_widened", "rows_tn_widened"} & set(ops.names)


@pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 4, 3)])
def test_gradients_are_those_of_casts(shape):
    """In the bits of a cast and of a product that is rounded; a bias is summed in float32."""
    flow.manual_seed(0)
    weight, bias, x = flow.randn(5, 3), flow.randn(5), flow.randn(*shape)
    found = []
    for automatic in (True, False):
        w, b = (p.clone().requires_grad_() for p in (weight, bias))
        with flow.autocast("cpu", LOW, enabled=automatic):
            if automatic:
                y = nn.functional.linear(x, w, b)
            else:
                y = nn.functional.linear(x.to(LOW), w.to(LOW), b.to(LOW))
        (y * y).sum().backward()
        found.append((w.grad.tolist(), b.grad.tolist()))
        lines = y.detach().float().reshape(-1, 5)
        torch.testing.assert_close(
            b.grad.to_torch(), 2 * lines.sum(0).to_torch(), rtol=1e-2, atol=0
        )
    assert found[0] == found[1]


def test_second_gradients():
    w = flow.ones(3, 3, requires_grad=True)
    with flow.autocast("cpu", LOW):
        y = flow.ones(2, 3) @ w
    (first,) = flow.autograd.grad((y * y).sum(), w, create_graph=True)
    (second,) = flow.autograd.grad(first.sum(), w)
    assert first.tolist() == [[12.0] * 3] * 3 and second.tolist() == [[12.0] * 3] * 3
    assert second.dtype == WIDE


def test_sums_of_two_dtypes_are_not_cast():
    ops = Ops()
    x = flow.ones(2, 2, dtype=LOW, requires_grad=True)
    with interpreter.using(ops), flow.autocast("cpu", LOW):
        y = (x + flow.ones(2, 2)) * x - flow.ones(2, 2)
    assert y.dtype == WIDE and "cast" not in ops.names
    y.sum().backward()
    assert x.grad.dtype == LOW and x.grad.tolist() == [[3.0, 3.0]] * 2
