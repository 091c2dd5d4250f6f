"""SGD against torch.optim.SGD, step by step, for every option and layout of the parameters."""

import numpy as np
import pytest
import torch
from training import LAYOUTS, assert_same_training, gradients, parameters

import onefold as flow
from onefold.errors import OnefoldValueError

OPTIONS = [
    {},
    {"weight_decay": 0.1},
    {"momentum": 0.9},
    {"momentum": 0.9, "dampening": 0.4},
    {"momentum": 0.8, "nesterov": True, "weight_decay": 0.05},
    {"maximize": True},
    {"momentum": 0.9, "weight_decay": 0.1, "maximize": True},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_step_is_torchs(options, layout, dtype, world):
    options = {"lr": 0.05, **options}
    assert_same_training("SGD", options, layout, dtype)


def test_the_default_learning_rate_is_oneflows(world):
    assert flow.optim.SGD(parameters("local")).param_groups[0]["lr"] == 1e-3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lr": -1.0}, "lr must be >= 0, but got -1.0"),
        ({"momentum": -0.1}, "momentum must be >= 0"),
        ({"weight_decay": -0.1}, "weight_decay must be >= 0"),
        ({"nesterov": True}, "Nesterov momentum requires momentum > 0 and dampening 0"),
        ({"nesterov": True, "momentum": 0.9, "dampening": 0.1}, "Nesterov momentum requires"),
    ],
)
def test_bad_options(options, text, world):
    with pytest.raises(OnefoldValueError, match=text):
        flow.optim.SGD(parameters("local"), **options)


def trained(**options):
    """The parameters' values after three steps."""
    params = parameters("local")
    optimizer = flow.optim.SGD(params, lr=0.1, momentum=0.9, **options)
    for step in range(3):
        for param, grad in zip(params, gradients(step, "local", params), strict=True):
            param.grad = grad
        optimizer.step()
    return [param.numpy() for param in params]


def test_contiguous_params_and_fused_change_no_value(world):
    plain = trained()
    assert not np.array_equal(plain[0], parameters("local")[0].numpy())
    for options in ({"contiguous_params": True}, {"fused": True}):
        for value, wanted in zip(trained(**options), plain, strict=True):
            np.testing.assert_array_equal(value, wanted)
