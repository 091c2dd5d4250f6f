"""Adam and RMSprop against torch's, LARS and LAMB against their formulas, for every layout."""

import math

import numpy as np
import pytest
import torch
from launched import run_ranks
from training import LAYOUTS, assert_formula, assert_same_training, gradients, parameters

import onefold as flow
from onefold.errors import OnefoldValueError
from onefold.testing.sample_checks import value_of

TORCHS = [
    ("Adam", {}),
    ("Adam", {"weight_decay": 0.1, "betas": (0.5, 0.75), "eps": 1e-3}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.02}),
    ("Adam", {"maximize": True, "weight_decay": 0.02}),
    ("RMSprop", {}),
    ("RMSprop", {"weight_decay": 0.1, "alpha": 0.5, "eps": 1e-3}),
    ("RMSprop", {"centered": True, "momentum": 0.5, "alpha": 0.8, "eps": 1e-2}),
    ("RMSprop", {"maximize": True, "momentum": 0.5, "eps": 0.1}),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("name", "options"), TORCHS, ids=str)
def test_every_step_is_torchs(name, options, layout, dtype, world):
    assert_same_training(name, {"lr": 0.03, **options}, layout, dtype)


def rmsprop(w, g, kept, lr, alpha, eps, centered):
    """As OneFlow writes it, with eps in the root."""
    kept["square"] = alpha * kept.get("square", 0.0) + (1 - alpha) * g * g
    kept["mean"] = alpha * kept.get("mean", 0.0) + (1 - alpha) * g
    spread = kept["square"] - (kept["mean"] ** 2 if centered else 0.0)
    return w - lr * g / (spread + eps).sqrt()


def lars(w, g, kept, lr, momentum, eps, lars_coefficient, weight_decay):
    own = lr
    if w.norm() > 0 and g.norm() > 0:
        below = g.norm() + weight_decay * w.norm() + eps
        own = lr * lars_coefficient * w.norm() / below
    kept["moved"] = momentum * kept.get("moved", 0.0) - own * g
    return w + kept["moved"] - own * weight_decay * w


def lamb(w, g, kept, lr, betas, eps, weight_decay, do_bias_correction):
    first, second = betas
    kept["step"] = kept.get("step", 0) + 1
    kept["m"] = first * kept.get("m", 0.0) + (1 - first) * g
    kept["v"] = second * kept.get("v", 0.0) + (1 - second) * g * g
    m, v = kept["m"], kept["v"]
    if do_bias_correction:
        m, v = m / (1 - first ** kept["step"]), v / (1 - second ** kept["step"])
    u = m / (v.sqrt() + eps) + weight_decay * w
    ratio = w.norm() / u.norm() if w.norm() > 0 and u.norm() > 0 else 1.0
    return w - lr * ratio * u


LARS = {"lr": 0.5, "momentum": 0.8, "eps": 1e-3, "lars_coefficient": 0.05}
LAMB = {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-4}
FORMULAS = [
    (rmsprop, "RMSprop", {"lr": 0.03, "alpha": 0.9, "eps": 1e-2, "centered": False}),
    (rmsprop, "RMSprop", {"lr": 0.03, "alpha": 0.7, "eps": 1e-1, "centered": True}),
    (lars, "LARS", {**LARS, "weight_decay": 0.0}),
    (lars, "LARS", {**LARS, "weight_decay": 0.1}),
    (lamb, "LAMB", {**LAMB, "weight_decay": 0.0, "do_bias_correction": True}),
    (lamb, "LAMB", {**LAMB, "weight_decay": 0.1, "do_bias_correction": False}),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("formula", "name", "options"), FORMULAS, ids=lambda x: getattr(x, "__name__", str(x))
)
def test_every_step_is_the_formulas(formula, name, options, layout, dtype, world):
    assert_formula(formula, name, options, layout, dtype)


def test_the_defaults(world):
    """OneFlow's, which for RMSprop's rate is not torch's."""
    found = {
        name: getattr(flow.optim, name)(parameters("local")).param_groups[0]
        for name in ("Adam", "RMSprop", "LARS", "LAMB")
    }
    assert {group["lr"] for group in found.values()} == {1e-3}
    assert {group["weight_decay"] for group in found.values()} == {0.0}
    assert [found[name]["eps"] for name in found] == [1e-8, 1e-8, 1e-9, 1e-6]
    assert (found["RMSprop"]["alpha"], found["RMSprop"]["eps_in_root"]) == (0.99, False)
    assert (found["LARS"]["momentum"], found["LARS"]["lars_coefficient"]) == (0.9, 0.0001)


def test_a_wrong_formula_is_noticed(world):
    def other(*args, **options):
        return lamb(*args, **{**options, "lr": 0.11})

    with pytest.raises(AssertionError):
        assert_formula(other, "LAMB", FORMULAS[-1][2], "split", torch.float64)


@pytest.mark.parametrize("name", ["LARS", "LAMB"])
def test_norms_over_processes(name):
    """A process for each rank, one of which has no part of the second parameter."""

    def train():
        values = [torch.arange(1.0, 13.0).reshape(4, 3), torch.arange(1.0, 6.0)]
        places = [flow.placement("cpu", [0, 1, 2]), flow.placement("cpu", [1, 2])]
        params = [
            flow.nn.Parameter(flow.tensor(v.numpy(), placement=p, sbp=flow.sbp.split(0)))
            for v, p in zip(values, places, strict=True)
        ]
        optimizer = getattr(flow.optim, name)(params, lr=0.5)
        for _ in range(3):
            for param in params:
                param.grad = param.detach() * param.detach()
            optimizer.step()
        return [param.detach().numpy() for param in params]

    wanted = train()
    for found in run_ranks(3, train):
        for mine, right in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine, right, rtol=1e-6)


@pytest.mark.parametrize("name", ["Adam", "RMSprop", "LARS", "LAMB"])
def test_a_state_that_is_loaded_goes_on_alike(name, world):
    results = []
    for again in (False, True):
        params = parameters("split")
        optimizer = getattr(flow.optim, name)(params, lr=0.1)
        for step in range(4):
            if again and step == 2:
                state = optimizer.state_dict()
                optimizer = getattr(flow.optim, name)(params, lr=9.0)
                optimizer.load_state_dict(state)
            for param, grad in zip(params, gradients(step, "split", params), strict=True):
                param.grad = grad
            optimizer.step()
        for param in params:
            assert set(optimizer.state[param]) == set(
                optimizer.state_names(optimizer.param_groups[0])
            )
        results.append([value_of(param.detach()) for param in params])
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("Adam", {"lr": -1.0}, "Adam: lr must be >= 0, but got -1.0"),
        ("RMSprop", {"momentum": math.nan}, "RMSprop: momentum must be >= 0, but got nan"),
        ("RMSprop", {"alpha": 1.5}, r"RMSprop: alpha must be in \[0, 1\], but got 1.5"),
        ("LARS", {"lars_coefficient": -1.0}, "LARS: lars_coefficient must be >= 0"),
        ("LAMB", {"betas": (0.9, 1.0)}, r"LAMB: betas must be two numbers in \[0, 1\), but got"),
        ("LAMB", {"betas": (0.9,)}, "LAMB: betas must be two numbers"),
    ],
)
def test_bad_options(name, options, text, world):
    with pytest.raises(OnefoldValueError, match=text):
        getattr(flow.optim, name)(parameters("local"), **options)
