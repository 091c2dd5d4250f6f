"""AdamW against torch.optim.AdamW, step by step, for every option and layout of the parameters."""

import math

import pytest
import torch
from training import LAYOUTS, assert_same_training, gradients, parameters

import onefold as flow
from onefold.errors import OnefoldValueError
from onefold.testing.sample_checks import value_of

OPTIONS = [
    {},
    {"weight_decay": 0.1},
    {"betas": (0.5, 0.75), "eps": 1e-3},
    {"amsgrad": True, "weight_decay": 0.02},
    {"maximize": True, "weight_decay": 0.02},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_step_is_torchs(options, layout, dtype, world):
    options = {"lr": 0.03, "weight_decay": 0.0, **options}
    assert_same_training("AdamW", options, layout, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("amsgrad", [False, True])
def test_without_bias_correction(layout, amsgrad, world):
    """The formula written out: torch has no such option."""
    options = {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-6, "weight_decay": 0.1}
    params = parameters(layout, torch.float64)
    optimizer = flow.optim.AdamW(params, do_bias_correction=False, amsgrad=amsgrad, **options)
    wanted = [value_of(p.detach()).clone() for p in params]
    m = [torch.zeros_like(w) for w in wanted]
    v = [torch.zeros_like(w) for w in wanted]
    largest = [torch.zeros_like(w) for w in wanted]
    for step in range(5):
        for i, grad in enumerate(gradients(step, layout, params)):
            g = value_of(grad)
            m[i] = 0.8 * m[i] + 0.2 * g
            v[i] = 0.9 * v[i] + 0.1 * g * g
            largest[i] = torch.maximum(largest[i], v[i])
            root = (largest[i] if amsgrad else v[i]).sqrt()
            wanted[i] = wanted[i] * (1 - 0.01) - 0.1 * m[i] / (root + 1e-6)
            params[i].grad = grad
        optimizer.step()
    for param, right in zip(params, wanted, strict=True):
        torch.testing.assert_close(value_of(param.detach()), right)


def test_the_defaults_are_oneflows(world):
    group = flow.optim.AdamW(parameters("local")).param_groups[0]
    assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (
        1e-3, (0.9, 0.999), 1e-8, 0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lr": -1.0}, "lr must be >= 0, but got -1.0"),
        ({"lr": math.nan}, "lr must be >= 0, but got nan"),
        ({"eps": -1.0}, "eps must be >= 0"),
        ({"weight_decay": -1.0}, "weight_decay must be >= 0"),
        ({"betas": (1.0, 0.9)}, r"betas must be two numbers in \[0, 1\), but got"),
        ({"betas": (0.9, -0.1)}, r"betas must be two numbers in \[0, 1\)"),
    ],
)
def test_bad_options(options, text, world):
    with pytest.raises(OnefoldValueError, match=text):
        flow.optim.AdamW(parameters("local"), **options)
