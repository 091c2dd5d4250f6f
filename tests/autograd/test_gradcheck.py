"""autograd.gradcheck, against torch's verdict on the same functions."""

import pytest
import torch

import onefold as flow
from onefold.engine.gradcheck import GradcheckError
from onefold.errors import OnefoldNotImplementedError, OnefoldValueError


def double(module, data):
    return module.tensor(data, dtype=module.float64, requires_grad=True)


FUNCTIONS = {
    "right": (lambda x, y: (x.sin() * y).sum(), True),
    "several outputs": (lambda x, y: (x * y, (x * x).sum(), x.detach().argmax()), True),
    "unused input": (lambda x, y: x.exp(), True),
    "wrong by a detached factor": (lambda x, y: x.detach() * x + y, False),
    "no gradient where there is one": (lambda x, y: (x * y).detach(), False),
    "constant": (lambda x, y: (x * 0).detach(), True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_verdict_is_torchs(name):
    function, right = FUNCTIONS[name]
    for module in (torch, flow):
        inputs = double(module, [[0.5, -1.0]]), double(module, [[2.0], [3.0]])
        assert module.autograd.gradcheck(function, inputs, raise_exception=False) is right


def test_a_wrong_gradient_is_shown():
    x = double(flow, [1.0, 2.0])
    with pytest.raises(GradcheckError, match=r"output 0 with respect to input 0(.|\n)*numerical:"):
        flow.autograd.gradcheck(lambda x: x.detach() * x, x)
    with pytest.raises(GradcheckError, match="does not require grad, but changes with input 0"):
        flow.autograd.gradcheck(lambda x: x.detach() * 2, (x,))
    assert x.grad is None


def test_a_backward_that_differs_between_runs():
    class Drifting(flow.autograd.Function):
        runs = 0

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            Drifting.runs += 1
            return dy * (2 + 1e-7 * Drifting.runs)

    x = double(flow, [1.0])
    with pytest.raises(GradcheckError, match="not reentrant"):
        flow.autograd.gradcheck(Drifting.apply, x)
    assert flow.autograd.gradcheck(Drifting.apply, x, nondet_tol=1e-5)


def test_global_tensors_and_other_arguments(world):
    there = {"placement": flow.placement("cpu", [0, 1]), "sbp": flow.sbp.split(0)}
    x = flow.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=flow.float64, requires_grad=True, **there)
    assert flow.autograd.gradcheck(lambda x, power, y: (x**power) @ y, (x, 3, x.detach()))


def test_bad_inputs():
    check = flow.autograd.gradcheck
    with pytest.raises(OnefoldValueError, match="at least one input tensor to require gradient"):
        check(lambda x: x, (flow.ones(1), 2))
    with pytest.raises(OnefoldNotImplementedError, match="real inputs, but input 0"):
        check(lambda x: x, flow.ones(1, dtype=flow.complex128, requires_grad=True))
    with pytest.raises(OnefoldNotImplementedError, match="real results"):
        check(lambda x: x * 1j, double(flow, [1.0]))
    with pytest.warns(UserWarning, match="not a double precision"):
        check(lambda x: x * 2, flow.ones(1, requires_grad=True), atol=1.0)
    empty = flow.zeros(0, dtype=flow.float64, requires_grad=True)
    assert check(lambda x: x * 2, empty)


SECOND = {
    "right": (lambda x, y: ((x.sin() * y).exp(), (x * y**3).sum()), True),
    "linear": (lambda x, y: x + y, True),
    "wrong in the second": (lambda x, y: x.detach() * x * 2 - x.detach() ** 2 + y * x, False),
}


@pytest.mark.parametrize("name", SECOND)
def test_the_verdict_of_second_gradients_is_torchs(name):
    function, right = SECOND[name]
    for module in (torch, flow):
        inputs = double(module, [[0.5, -1.0]]), double(module, [[2.0], [3.0]])
        check = module.autograd.gradgradcheck
        assert check(function, inputs, raise_exception=False) is right
