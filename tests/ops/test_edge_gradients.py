"""Gradients at the edges of what floats hold, and of counts that leave no degrees of freedom."""

import math

import pytest
import torch

import onefold as flow

LAYOUTS = [None, flow.sbp.split(0), flow.sbp.broadcast]
NUMBERS = [math.inf, -math.inf, 3e38, -3e38, 1.0, 0.0, 1e-42]


def check(function, values, layout):
    """The value and the gradients of `function`, of torch or flow and tensors, are torch's."""
    inputs = [torch.tensor(each, requires_grad=True) for each in values]
    wanted = function(torch, *inputs)
    wanted.sum().backward()
    where = {} if layout is None else {"placement": flow.placement("cpu", [0, 1]), "sbp": layout}
    mine = [flow.tensor(each, requires_grad=True, **where) for each in values]
    made = function(flow, *mine)
    made.sum().backward()
    pairs = [
        (made, wanted.detach()),
        *[(m.grad, t.grad) for m, t in zip(mine, inputs, strict=True)],
    ]
    for found, true in pairs:
        found = torch.from_numpy(found.numpy())
        torch.testing.assert_close(found, true, rtol=1e-5, atol=1e-30, equal_nan=True)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_shares_of_infinite_sums(name, layout):
    pairs = [(a, b) for a in NUMBERS for b in NUMBERS if a != b]
    a, b = ([pair[i] for pair in pairs] for i in range(2))
    check(lambda space, *tensors: getattr(space, name)(*tensors), [a, b], layout)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_sinc_where_squares_are_0(layout):
    values = [0.0, -0.0, 1e-42, -1e-30, 1e-23, 1e-3, 1.0]
    check(lambda space, x: space.sinc(x), [values], layout)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("correction", [0, 1, 2, 3, 6, 7])
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_variances_without_degrees_of_freedom(correction, dim, layout):
    values = [[1.0, 2.0, 4.0], [3.0, 2.0, -1.0]]
    check(lambda space, x: space.var(x, dim=dim, correction=correction), [values], layout)
