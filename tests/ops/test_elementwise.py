"""Elementwise ops that are functions: what is made of one."""

from __future__ import annotations

import inspect

import pytest
import torch

import onefold as flow
from onefold.engine import dispatch_plan, methods
from onefold.engine.names import names
from onefold.engine.ops.arithmetic import mul
from onefold.engine.ops.compare import gt
from onefold.engine.ops.elementwise import elementwise, gradient_kernel
from onefold.engine.ops.pointwise import INCREASING
from onefold.engine.ops.unary import exp, square
from onefold.engine.ops.where import where
from onefold.engine.tensor import Tensor
from onefold.kernels import scalar_expression


@pytest.fixture(autouse=True)
def registries(world, monkeypatch):
    """What a test defines is forgotten behind it."""
    for name in ("_ADAPT", "_TRITON", "_TORCH", "_WRITTEN"):
        monkeypatch.setattr(scalar_expression, name, dict(getattr(scalar_expression, name)))
    known = dict(vars(names)), dict(dispatch_plan.ops), list(methods.METHODS), list(methods.INPLACE)
    attributes = set(vars(Tensor))
    yield
    for table, before in ((vars(names), known[0]), (dispatch_plan.ops, known[1])):
        table.clear()
        table.update(before)
    methods.METHODS[:], methods.INPLACE[:] = known[2:]
    for name in set(vars(Tensor)) - attributes:
        delattr(Tensor, name)


def values(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def gradients(call, x, leaf):
    """The value, the gradient and the gradient of the sum of its squares."""
    y = call(leaf)
    grad = (flow if isinstance(y, Tensor) else torch).autograd.grad
    (first,) = grad(y.sum(), [leaf], create_graph=True)
    (second,) = grad((first * first).sum(), [leaf])
    return [value.numpy() if isinstance(value, Tensor) else value for value in (y, first, second)]


def assert_as_in_torch(call, wanted, x):
    leaf = flow.tensor(x, requires_grad=True)
    theirs = gradients(wanted, x, x.clone().requires_grad_())
    for found, other in zip(gradients(call, x, leaf), theirs, strict=True):
        torch.testing.assert_close(torch.as_tensor(found), other.detach())


def test_an_op_that_torch_has_not():
    @elementwise(gradient=lambda dy, y, input, scale: dy * y * scale, passes=INCREASING)
    def scaled_exp(input: Tensor, scale: float = 2.0) -> Tensor:
        """exp(scale * x)"""
        return exp(input * scale)

    x = values(4, 3)
    assert_as_in_torch(scaled_exp, lambda x: torch.exp(2 * x), x)
    assert_as_in_torch(lambda x: scaled_exp(x, scale=0.5), lambda x: torch.exp(0.5 * x), x)
    assert list(inspect.signature(scaled_exp).parameters) == ["input", "scale"]
    assert scaled_exp.__doc__ == "exp(scale * x)"
    assert names.scaled_exp is scaled_exp
    y = flow.tensor(x)
    assert y.scaled_exp(1.0).equal(y.exp())
    assert y.scaled_exp_(1.0) is y
    assert y.equal(flow.tensor(x).exp())


def test_only_what_the_gradient_asks_for_is_kept():
    @elementwise(gradient=lambda dy, y: dy * y)
    def _by_output(input: Tensor) -> Tensor:
        return exp(input)

    @elementwise(gradient=lambda dy, input: dy * (input * 2))
    def _by_input(input: Tensor) -> Tensor:
        return square(input)

    @elementwise()
    def _flag(input: Tensor) -> Tensor:
        return input > 1

    kept = {name: dispatch_plan.ops[name][0] for name in ("by_output", "by_input", "flag")}
    assert (kept["by_output"].saves, kept["by_output"].saves_output) == ((), True)
    assert (kept["by_input"].saves, kept["by_input"].saves_output) == ((0,), False)
    assert not kept["flag"].differentiable
    assert _flag(flow.tensor([0.0, 2.0])).tolist() == [False, True]
    assert not hasattr(Tensor, "by_input") and not hasattr(names, "by_input")


def test_a_gradient_kernel_derives_its_own_gradient():
    @gradient_kernel()
    def _bend_backward(dy: Tensor, input: Tensor) -> Tensor:
        return dy * where(gt(input, 0), 3 * input * input, exp(input))

    @elementwise(gradient=_bend_backward)
    def _bend(input: Tensor) -> Tensor:
        return where(gt(input, 0), input * input * input, exp(input))

    x = values(5, 2)
    assert_as_in_torch(_bend, lambda x: torch.where(x > 0, x * x * x, x.exp()), x)
    leaf = flow.tensor(x, requires_grad=True)
    _bend(leaf).sum().backward()
    assert dispatch_plan.ops["bend_backward"]


def test_two_inputs_broadcast():
    @elementwise(gradient=(lambda dy, b: mul(dy, square(b)), lambda dy, a, b: 2 * dy * a * b))
    def _weighted(a: Tensor, b: Tensor) -> Tensor:
        return a * square(b)

    a, b = values(4, 3), values(3, seed=1)
    ours = [flow.tensor(value, requires_grad=True) for value in (a, b)]
    theirs = [value.clone().requires_grad_() for value in (a, b)]
    _weighted(*ours).sum().backward()
    (theirs[0] * theirs[1] ** 2).sum().backward()
    for found, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(torch.as_tensor(found.grad.numpy()), wanted.grad)
