"""0-d tensors where functions take numbers, as torch takes them: sizes, dims, bounds, options."""

import numpy as np
import pytest
import torch

import onefold as flow

CALLS = {
    "arange": lambda t, n, h, x: t.arange(n),
    "arange by": lambda t, n, h, x: t.arange(h, n, h),
    "expand": lambda t, n, h, x: h.expand(n, 3),
    "full": lambda t, n, h, x: t.full((n, 1), h),
    "linspace": lambda t, n, h, x: t.linspace(h, n, n + 1),
    "max_pool1d": lambda t, n, h, x: t.nn.functional.max_pool1d(x, n),
    "narrow": lambda t, n, h, x: x.narrow(1, n - 1, n),
    "one_hot": lambda t, n, h, x: t.nn.functional.one_hot(t.tensor([0, 1]), n),
    "pad": lambda t, n, h, x: t.nn.functional.pad(x, (0, n), value=h),
    "repeat": lambda t, n, h, x: x.repeat(n, 1),
    "reshape": lambda t, n, h, x: x.reshape(-1, n),
    "slice": lambda t, n, h, x: x[:, :n],
    "softmax": lambda t, n, h, x: x.softmax(n - 1),
    "split": lambda t, n, h, x: x.split(n, 1)[0],
    "transpose": lambda t, n, h, x: x.transpose(n - 2, 1),
    "unflatten": lambda t, n, h, x: x.flatten().unflatten(0, (n, 3)),
    "view": lambda t, n, h, x: x.view(n + 1, -1),
    "zeros": lambda t, n, h, x: t.zeros(n, 3),
    "zeros of": lambda t, n, h, x: t.zeros((n, 3)),
}


@pytest.mark.parametrize("name", CALLS)
def test_tensors_for_numbers(name):
    call = CALLS[name]
    x = torch.arange(6.0).reshape(2, 3)
    theirs = call(torch, torch.tensor(2), torch.tensor(0.5), x)
    ours = call(flow, flow.tensor(2), flow.tensor(0.5), flow.from_torch(x))
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours.to_torch(), theirs)


def test_a_number_that_changes():
    """No plan is kept for the value that a tensor had."""
    x, i = flow.arange(6.0), flow.tensor(0)
    for k in range(3):
        assert x.narrow(0, i, 2).tolist() == [k, k + 1]
        assert x.view(i + 1, -1).shape == (k + 1, 6 // (k + 1))
        assert flow.arange(i).tolist() == list(range(k))
        i += 1


def test_bounds_of_random_numbers():
    flow.manual_seed(0)
    expected = flow.empty(4).uniform_(0.25, 0.5)
    flow.manual_seed(0)
    drawn = flow.empty(4).uniform_(flow.tensor(0.25), flow.tensor(0.5))
    assert flow.equal(drawn, expected)


def test_global_numbers(world):
    p = flow.placement("cpu", [0, 1])
    n = flow.tensor([1, 1], placement=p, sbp=flow.sbp.split(0)).sum()
    y = flow.zeros(n, 3, placement=p, sbp=flow.sbp.split(0))
    np.testing.assert_array_equal(y.numpy(), np.zeros((2, 3)))


def test_what_is_no_number():
    with pytest.raises(TypeError, match="sizes must be integers"):
        flow.zeros(flow.tensor(1.5))
    with pytest.raises(TypeError, match="zeros"):
        flow.zeros(flow.tensor([1, 2]))
    with pytest.raises(TypeError, match="pad"):  # its gradient would be lost
        flow.nn.functional.pad(flow.ones(2), (1, 1), value=flow.tensor(0.5, requires_grad=True))


def test_functions_of_users_run_once():
    calls = []

    def fails(x):
        calls.append(x)
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        flow.func.grad(fails)(flow.tensor(1.0))
    assert len(calls) == 1
