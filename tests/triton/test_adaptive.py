"""The updates of Adam, RMSprop, LARS and LAMB in one launch, against their references."""

import math

import pytest
import torch
from triton_updates import DTYPES, assert_updates, clones, lists

from onefold.kernels import adam_ref, lamb_ref, momentum_ref, rmsprop_ref, select

ADAM = {"betas": (0.9, 0.999), "eps": 1e-3, "weight_decay": 0.1, "lr": 0.05}
LAMB = {"betas": (0.9, 0.999), "eps": 0.5, "weight_decay": 0.1}
RMSPROP = {"lr": 0.05, "alpha": 0.9, "eps": 1e-2, "weight_decay": 0.1, "momentum": 0.5}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("step", [None, 3])
def test_adam(dtype, largest, step):
    for maximize in (False, True):
        columns = lists(5 if largest else 4, dtype)
        assert_updates(adam_ref.adam, columns, step=step, maximize=maximize, **ADAM)


def squares(dtype, more):
    """Columns for RMSprop: roots are taken of the third, and of it less the fourth's square."""
    columns = lists(3 + more, dtype)
    columns[2] = [x.abs() + 40 for x in columns[2]]
    return columns


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("moving", [False, True])
def test_rmsprop(dtype, centered, moving):
    def reference(params, grads, average, *more, update=rmsprop_ref.rmsprop, **options):
        mean = more[0] if centered else None
        buffer = more[-1] if moving else None
        update(params, grads, average, mean, buffer, **options)

    for eps_in_root in (False, True):
        given = squares(dtype, centered + moving)
        options = {**RMSPROP, "eps_in_root": eps_in_root, "maximize": eps_in_root}
        exact, torchs, mine = clones(given, torch.float64), clones(given), clones(given)
        reference(*exact, **options)
        reference(*torchs, **options)
        reference(*mine, update=select.triton_kernel(rmsprop_ref.rmsprop), **options)
        for true, theirs, found in zip(exact, torchs, mine, strict=True):
            for a, b, c in zip(true, theirs, found, strict=True):
                eps = torch.finfo(dtype).eps
                limit = 2 * (b - a).abs().amax() + 40 * eps if a.numel() else 0
                assert ((c - a).abs() <= limit).all()


def assert_rated(reference, count, dtype, monkeypatch, **options):
    """As `assert_updates`, for an update that takes a rate for each tensor."""
    rates = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5], dtype=torch.float64)

    def with_rates(update):
        return lambda *columns, **more: update(*columns, rates, **more)

    triton_kernel = with_rates(select.triton_kernel(reference))
    monkeypatch.setattr(select, "triton_kernel", lambda reference: triton_kernel)
    assert_updates(with_rates(reference), lists(count, dtype), **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_momentum_with_a_rate_for_each_tensor(dtype, monkeypatch):
    assert_rated(momentum_ref.momentum, 3, dtype, monkeypatch, beta=0.8, weight_decay=0.1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_moves(dtype, monkeypatch):
    assert_rated(lamb_ref.move, 2, dtype, monkeypatch)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("step", [None, 3])
def test_directions(dtype, step):
    assert_updates(lamb_ref.directions, lists(5, dtype), step=step, **LAMB)


def test_numbers_on_the_device():
    scale = torch.tensor(0.25)
    options = {**ADAM, "lr": torch.tensor(0.05), "maximize": False, "scale": scale}
    assert_updates(adam_ref.adam, lists(4, torch.float32), step=torch.tensor(3.0), **options)
    step = torch.tensor(3.0)
    assert_updates(lamb_ref.directions, lists(5, torch.float32), step=step, scale=scale, **LAMB)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_skipped_update_changes_no_bit(dtype):
    rates = torch.ones(5, dtype=torch.float64)
    for function, count, last, options in [
        (adam_ref.adam, 5, (), {**ADAM, "step": None, "maximize": False}),
        (rmsprop_ref.rmsprop, 5, (), {**RMSPROP, "eps_in_root": True, "maximize": False}),
        (momentum_ref.momentum, 3, (rates,), {"beta": 0.5, "weight_decay": 0.1}),
        (lamb_ref.directions, 5, (), {**LAMB, "step": torch.tensor(0.0)}),
        (lamb_ref.move, 2, (rates,), {}),
    ]:
        for update in (function, select.triton_kernel(function)):
            for found in (0.0, 1.0):
                columns = lists(count, dtype)
                columns[1] = [x * math.inf for x in columns[1]]
                mine = clones(columns)
                update(*mine, *last, found_inf=torch.tensor(found), **options)
                same = [all(map(torch.equal, *pair)) for pair in zip(columns, mine, strict=True)]
                assert all(same) if found else not all(same)
