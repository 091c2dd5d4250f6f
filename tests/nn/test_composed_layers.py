"""Layers of several ops against torch's: adaptive softmax, linear cross entropy and others."""

import copy

import numpy as np
import pytest
import torch
from torch_oracle import needs_this_torch

import onefold as flow
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError, ShapeError
from onefold.nn.linear_cross_entropy_loss import linear_cross_entropy
from onefold.testing.sample_checks import value_of

LAYOUTS = {
    "local": None,
    "data parallel": ([0, 1, 2], [flow.sbp.broadcast], [flow.sbp.split(0)]),
    "tensor parallel": ([0, 1], [flow.sbp.split(0)], [flow.sbp.broadcast]),
    "mesh": (
        [[0, 1], [2, 3]],
        [flow.sbp.broadcast, flow.sbp.split(0)],
        [flow.sbp.split(0), flow.sbp.broadcast],
    ),
}


def place(module, right, layout):
    """The module with torch's state, and a function that places inputs."""
    module.load_state_dict(right.state_dict())
    if layout is None:
        return lambda x: flow.tensor(x.detach().numpy())
    p = flow.placement("cpu", layout[0])
    whole = (flow.sbp.broadcast,) * p.ndim
    module.to_global(p, whole)
    module.to_global(p, lambda name, x: tuple(layout[1]) if x.ndim > 1 else whole)
    return lambda x: flow.tensor(x.detach().numpy(), placement=p, sbp=tuple(layout[2]))


def same(found, wanted):
    torch.testing.assert_close(value_of(found.detach()), wanted.detach(), rtol=1e-7, atol=1e-9)


def same_gradients(module, right):
    for name, param in right.named_parameters():
        same(module.get_parameter(name).grad, param.grad)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bias", [False, True])
def test_adaptive_softmax(bias, layout, world):
    torch.manual_seed(0)
    given = 8, 20, [4, 9, 15], 2.0, bias
    right = torch.nn.AdaptiveLogSoftmaxWithLoss(*given, dtype=torch.float64)
    mine = flow.nn.AdaptiveLogSoftmaxWithLoss(*given, dtype=torch.float64)
    put = place(mine, right, LAYOUTS[layout])
    assert list(mine.state_dict()) == list(right.state_dict()) and repr(mine) == repr(right)
    x, target = torch.randn(7, 8, dtype=torch.float64), torch.tensor([0, 3, 4, 19, 9, 2, 14])
    found, wanted = mine(put(x), put(target)), right(x, target)
    same(found.output, wanted.output)
    same(found.loss, wanted.loss)
    found.loss.backward()
    wanted.loss.backward()
    same_gradients(mine, right)
    same(mine.log_prob(put(x)), right.log_prob(x))
    assert value_of(mine.predict(put(x))).tolist() == right.predict(x).tolist()
    graph = flow.nn.Graph.trace(copy.deepcopy(mine))
    assert torch.equal(value_of(graph(put(x), put(target)).loss), value_of(found.loss.detach()))


def test_adaptive_softmax_of_one_sample_and_its_errors(world):
    right = torch.nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2])
    mine = flow.nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2])
    put = place(mine, right, None)
    x, target = torch.randn(4), torch.tensor(5)
    found, wanted = mine(put(x), put(target)), right(x, target)
    assert found.output.shape == () and found.output.item() == pytest.approx(wanted.output.item())
    for bad in ([], [3, 2], [0, 3], [6], [2.5]):
        with pytest.raises(OnefoldValueError, match="cutoffs should be a sequence"):
            flow.nn.AdaptiveLogSoftmaxWithLoss(4, 6, bad)
    x = flow.zeros(2, 4)
    with pytest.raises(OnefoldRuntimeError, match=r"in \[0, 5\], but values in range \[1, 6\]"):
        mine(x, flow.tensor([1, 6]))
    with pytest.raises(OnefoldRuntimeError, match="multi-target not supported"):
        mine(x, flow.tensor([[1, 2]]))
    with pytest.raises(OnefoldRuntimeError, match="same size in the batch dimension"):
        mine(x, flow.tensor([1]))
    with pytest.raises(OnefoldRuntimeError, match="expects 2D input tensors"):
        mine(x[0], flow.tensor([1]))


CASES = {
    "plain": {},
    "sum": {"reduction": "sum", "ignore_index": 2},
    "none": {"reduction": "none"},
    "bias": {"bias": True, "label_smoothing": 0.1},
    "weighted": {"weight": torch.arange(1.0, 7, dtype=torch.float64)},
    "outputs": {"out_features": (2, 3), "bias": True},
}


@needs_this_torch
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("probabilities", [False, True])
def test_linear_cross_entropy(case, probabilities, layout, world):
    torch.manual_seed(0)
    given = CASES[case]
    if probabilities and "ignore_index" in given:
        pytest.skip("torch refuses an ignore_index of probabilities")
    own = {k: flow.tensor(v.numpy()) if k == "weight" else v for k, v in given.items()}
    right = torch.nn.LinearCrossEntropyLoss(5, 6, **given, dtype=torch.float64)
    mine = flow.nn.LinearCrossEntropyLoss(5, 6, **own, dtype=torch.float64)
    put = place(mine, right, LAYOUTS[layout])
    assert list(mine.state_dict()) == list(right.state_dict()) and repr(mine) == repr(right)
    outputs = given.get("out_features", ())
    x = torch.randn(4, 5, dtype=torch.float64)
    target = torch.randint(0, 6, (4, *outputs))
    if probabilities:
        target = torch.rand(4, 6, *outputs, dtype=torch.float64).softmax(1)
    wanted, found = right(x, target), mine(put(x), put(target))
    same(found, wanted)
    wanted.square().sum().backward()
    found.square().sum().backward()
    same_gradients(mine, right)


def test_errors_of_linear_cross_entropy(world):
    loss = flow.nn.LinearCrossEntropyLoss(5, 6, options=flow.nn.LinearCrossEntropyOptions())
    assert loss(flow.ones(5), flow.tensor(1)).shape == ()
    with pytest.raises(ShapeError, match="expected weight shape"):
        flow.nn.LinearCrossEntropyLoss(5, 6, weight=flow.ones(5))
    with pytest.raises(OnefoldRuntimeError, match="label_smoothing to be in range"):
        flow.nn.LinearCrossEntropyLoss(5, 6, label_smoothing=2.0)
    with pytest.raises(ShapeError, match=r"got \(2, 4\) and \(6, 5\)"):
        loss(flow.ones(2, 4), flow.tensor([1, 2]))
    function = linear_cross_entropy
    weight = flow.ones(6, 5)
    with pytest.raises(OnefoldRuntimeError, match="ignore_index cannot be specified"):
        function(flow.ones(2, 5), weight, flow.ones(2, 6), ignore_index=0)
    with pytest.raises(ShapeError, match="expected linear_bias shape"):
        function(flow.ones(2, 5), weight, flow.tensor([1, 2]), linear_bias=flow.ones(5))
    with pytest.raises(ShapeError, match="requires batched input"):
        function(flow.ones(5), flow.ones(6, 2, 5), flow.tensor([1, 2]))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [2, 5, 9])
@pytest.mark.parametrize("size", [1, 3, 4, 5])
def test_cross_map_lrn(size, channels, layout, world):
    given = size, 0.3, 0.6, 1.5
    right, mine = torch.nn.CrossMapLRN2d(*given), flow.nn.CrossMapLRN2d(*given)
    assert repr(mine) == repr(right)
    put = place(mine, right, LAYOUTS[layout])
    x = torch.randn(4, channels, 2, 3, dtype=torch.float64)
    same(mine(put(x)), right(x))


def test_the_gradient_of_cross_map_lrn(world):
    layer = flow.nn.CrossMapLRN2d(3, 0.3, 0.6, 1.5)
    x = flow.tensor(torch.randn(1, 5, 1, 1, dtype=torch.float64).numpy(), requires_grad=True)
    layer(x).square().sum().backward()
    step = torch.eye(5, dtype=torch.float64).reshape(5, 1, 5, 1, 1) * 1e-6
    values = [
        [
            layer(x.detach() + flow.tensor((sign * one).numpy())).square().sum().item()
            for one in step
        ]
        for sign in (1, -1)
    ]
    slope = (np.array(values[0]) - values[1]) / 2e-6
    np.testing.assert_allclose(x.grad.numpy().reshape(-1), slope, rtol=1e-6)
    with pytest.raises(OnefoldValueError, match="Expected input to be 4D"):
        layer(flow.ones(3, 3))


def test_data_parallel_is_the_module(world):
    module = flow.nn.Linear(3, 2)
    wrapped = flow.nn.DataParallel(module, [0, 1], 0)
    assert wrapped.module is module
    right = torch.nn.DataParallel(torch.nn.Linear(3, 2), [])
    assert (
        list(wrapped.state_dict()) == list(right.state_dict()) == ["module.weight", "module.bias"]
    )
    x = flow.ones(1, 3)
    assert wrapped(x).numpy().tolist() == module(x).numpy().tolist()


def test_buffers_that_are_assigned(world):
    module = flow.nn.Module()
    module.first = flow.nn.Buffer(flow.ones(2))
    module.second = flow.nn.Buffer(flow.ones(2), persistent=False)
    assert list(module.state_dict()) == ["first"]
    assert [name for name, _ in module.named_buffers()] == ["first", "second"]
    other = copy.deepcopy(module)
    other.first.add_(1)
    assert module.first.numpy().tolist() == [1, 1] and list(other.state_dict()) == ["first"]
    with pytest.raises(OnefoldTypeError, match=r"nn\.Buffer needs an onefold Tensor"):
        flow.nn.Buffer([1.0])
