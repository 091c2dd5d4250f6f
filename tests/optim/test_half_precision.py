"""Optimizers of parameters in half precision against torch's in float64.

The tensors are longer than a vector of the CPU, so that what a loop does at its end is not all that
is tested.
"""

import pytest
import torch

import onefold as flow
from onefold.testing.sample_checks import value_of

STEPS = 3
SHAPES = [(16, 33), (70,), ()]
CASES = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("SGD", {"maximize": True}),
    ("Adam", {"weight_decay": 0.1}),
    ("Adam", {"amsgrad": True}),
    ("AdamW", {}),
    ("Adadelta", {"lr": 1.0, "eps": 0.1}),
    ("Adagrad", {}),
    ("Adamax", {}),
    ("ASGD", {}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("RMSprop", {"momentum": 0.5}),
    ("Rprop", {}),
]


def values(seed, dtype, size=1.0):
    make = torch.Generator().manual_seed(seed)
    return [(size * torch.randn(shape, generator=make)).to(dtype) for shape in SHAPES]


def assert_near(name, options, dtype):
    """After each step parameters differ by a few roundings to their dtype."""
    options = {"lr": 0.1, **options}
    start = values(0, dtype, 0.1)
    params = [flow.nn.Parameter(flow.tensor(x.clone())) for x in start]
    exact = [x.double().requires_grad_() for x in start]
    ours = getattr(flow.optim, name)(params, **options)
    theirs = getattr(torch.optim, name)(exact, **options)
    for step in range(1, STEPS + 1):
        for param, x, grad in zip(params, exact, values(step, dtype), strict=True):
            param.grad, x.grad = flow.tensor(grad), grad.double()
        ours.step()
        theirs.step()
        for param, x in zip(params, exact, strict=True):
            found, wanted = value_of(param.detach()), x.detach()
            assert found.dtype is dtype
            limit = 2 * step * torch.finfo(dtype).eps * max(float(wanted.abs().max()), 0.1)
            assert float((found - wanted).abs().max()) <= limit, (step, tuple(param.shape))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("name", "options"), CASES)
def test_steps_are_within_roundings_of_float64(name, options, dtype, world):
    assert_near(name, options, dtype)


def test_a_parameter_that_is_left_as_it_is_is_noticed(world, monkeypatch):
    monkeypatch.setattr(flow.optim.SGD, "update_lists", lambda *args: [])
    with pytest.raises(AssertionError):
        assert_near("SGD", {}, torch.bfloat16)
