"""The gradient of a function of torch reads what torch kept of forward, which runs once."""

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.testing.manual_layouts import make_global, make_local
from onefold.utils.custom_op import torch_function


class Counted:
    """A function of torch as an op, and how often torch computed it on data."""

    def __init__(self, rule="but 1"):
        self.count = 0

        def weigh(x, y):
            self.count += x.device.type != "meta"
            return (x.exp() * y).cumsum(-1).tanh()

        self.function = weigh
        self.op = torch_function(rule)(weigh)

    def check(self, tensors, wanted=(0, 1)):
        """Compare the gradients of the sum of the squares with torch's."""
        leaves = [x.requires_grad_() for x in values()]
        found = torch.autograd.grad(self.function(*leaves).square().sum(), leaves)
        for i in wanted:
            np.testing.assert_allclose(tensors[i].grad.numpy(), found[i].numpy(), rtol=1e-12)


def values():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(4, 6, generator=generator, dtype=torch.float64) for _ in range(2)]


@pytest.fixture
def leaves(world):
    return [make_local(x).requires_grad_() for x in values()]


def test_forward_runs_once(leaves):
    counted = Counted()
    counted.op(*leaves).square().sum().backward()
    assert counted.count == 1
    counted.check(leaves)


@pytest.mark.parametrize("rule", ["but 1", "none"])
def test_forward_runs_once_on_each_rank(rule, world):
    counted, ranks = Counted(rule), flow.placement("cpu", [0, 1])
    sbp = (flow.sbp.split(0) if rule == "but 1" else flow.sbp.broadcast,)
    leaves = [make_global(x, ranks, sbp).requires_grad_() for x in values()]
    counted.op(*leaves).square().sum().backward()
    assert counted.count <= 2
    counted.check(leaves)


def test_a_gradient_for_one_of_the_inputs(leaves):
    counted = Counted()
    counted.op(leaves[0], leaves[1].detach()).square().sum().backward()
    assert counted.count == 1
    assert leaves[1].grad is None
    counted.check(leaves, wanted=(0,))


def test_nothing_is_recorded_without_gradients(leaves):
    counted = Counted()
    with flow.no_grad():
        y = counted.op(*leaves)
    assert counted.count == 1
    assert not y.shared


def test_partial_sums_of_a_linear_function(world):
    """The record of an addend is not that of the sum."""
    ranks = flow.placement("cpu", [0, 1])
    x = make_global(values()[0], ranks, (flow.sbp.partial_sum,)).requires_grad_()
    y = flow.fft.rfft(x)
    assert y.sbp == (flow.sbp.partial_sum,)
    y.abs().sum().backward()
    leaf = values()[0].requires_grad_()
    torch.fft.rfft(leaf).abs().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), leaf.grad.numpy(), atol=1e-12)


@pytest.mark.parametrize("change", ["mul_", "zero_"])
def test_a_write_to_the_result_leaves_the_gradient_right(change, leaves):
    """torch keeps the result of tanh, and refuses this."""
    counted = Counted()
    y = counted.op(*leaves)
    seed = 2 * y.detach().clone()
    z = y + 0.0
    if change == "mul_":
        assert y.mul_(3.0).requires_grad
    else:
        with flow.no_grad():
            y.detach().zero_()
        assert not y.numpy().any()
    z.backward(seed)
    assert counted.count == 1
    counted.check(leaves)


def test_a_second_backward_and_second_gradients(leaves):
    counted = Counted()
    loss = counted.op(*leaves).square().sum()
    loss.backward(retain_graph=True)
    for x in leaves:
        x.grad = None
    loss.backward()
    counted.check(leaves)

    def gradient_norm(function, x, y, grad):
        (dx,) = grad(function(x, y).square().sum(), x, create_graph=True)
        return dx.square().sum()

    mine = flow.autograd.grad(gradient_norm(counted.op, *leaves, flow.autograd.grad), leaves)
    theirs = [x.requires_grad_() for x in values()]
    right = torch.autograd.grad(
        gradient_norm(counted.function, *theirs, torch.autograd.grad), theirs
    )
    for one, other in zip(mine, right, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-10)


def test_checkpoint_records_when_it_recomputes(leaves):
    counted = Counted()
    flow.utils.checkpoint.checkpoint(counted.op, *leaves).square().sum().backward()
    assert counted.count == 2
    counted.check(leaves)


def test_a_graph_plans_its_memory_and_computes_forward_again(leaves):
    counted = Counted()

    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.weights = flow.nn.ParameterList(map(flow.nn.Parameter, leaves))
            self.add_optimizer(flow.optim.SGD(self.weights.parameters(), lr=1.0))

        def build(self):
            loss = counted.op(*self.weights).square().sum()
            loss.backward()
            return loss

    step = Step()
    step()
    assert counted.count == 2
    leaves = [x.requires_grad_() for x in values()]
    found = torch.autograd.grad(counted.function(*leaves).square().sum(), leaves)
    for after, before, grad in zip(step.weights.parameters(), leaves, found, strict=True):
        np.testing.assert_allclose(after.numpy(), (before - grad).detach().numpy(), rtol=1e-12)
