"""Updates, norms and copies of many tensors in one launch."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from triton_harness import assert_matches_reference
from triton_updates import DTYPES, SIZES, assert_updates, clones, lists

from onefold.kernels import optim_ref, select

ADAMW = {"betas": (0.9, 0.999), "eps": 1e-3, "weight_decay": 0.1, "lr": 0.05}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("step", [None, 3])
def test_adamw(dtype, largest, step):
    for maximize in (False, True):
        columns = lists(5 if largest else 4, dtype)
        assert_updates(optim_ref.adamw, columns, step=step, maximize=maximize, **ADAMW)


def test_numbers_on_the_device():
    scale = torch.tensor(0.25)
    options = {**ADAMW, "lr": torch.tensor(0.05), "maximize": False, "scale": scale}
    assert_updates(optim_ref.adamw, lists(4, torch.float32), step=torch.tensor(3.0), **options)
    options = {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1, "nesterov": False}
    options |= {"lr": torch.tensor(0.05), "maximize": False, "first_step": False, "scale": scale}
    assert_updates(optim_ref.sgd, lists(3, torch.float32), **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_skipped_update_changes_no_bit(dtype):
    """In torch and in Triton; what would be written is not finite."""
    more = {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1, "nesterov": False}
    for function, count, options in [
        (optim_ref.adamw, 4, {**ADAMW, "step": torch.tensor(0.0)}),
        (optim_ref.adamw, 5, {**ADAMW, "step": None}),
        (optim_ref.sgd, 3, {**more, "lr": 0.1, "first_step": True}),
    ]:
        for update in (function, select.triton_kernel(function)):
            for found in (0.0, 1.0):
                columns = lists(count, dtype)
                columns[1] = [x * math.inf for x in columns[1]]
                mine = clones(columns)
                update(*mine, maximize=False, found_inf=torch.tensor(found), **options)
                same = [all(map(torch.equal, *pair)) for pair in zip(columns, mine, strict=True)]
                assert all(same) if found else not same[0] and not same[2]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("first", [False, True])
def test_sgd(dtype, momentum, first):
    for nesterov, maximize in ((False, True), (bool(momentum), False)):
        assert_updates(
            optim_ref.sgd, lists(3, dtype), lr=0.1, momentum=momentum, weight_decay=0.3,
            dampening=0.0 if nesterov else 0.2, nesterov=nesterov, maximize=maximize,
            first_step=first,
        )  # fmt: skip


def test_a_wrong_update_is_noticed():
    options = {**ADAMW, "step": 2, "maximize": False}

    def doubled(*columns, **options):
        optim_ref.adamw(*columns, **{**options, "lr": 2 * options["lr"]})

    doubled.__module__, doubled.__name__ = optim_ref.__name__, "adamw"
    with pytest.raises(AssertionError):
        assert_updates(doubled, lists(4, torch.float32), **options)


def test_views_that_are_not_aligned_and_not_dense():
    flat = torch.randn(4, 4101)
    columns = [[row[1:], row[:7], row[9:30:2].clone()] for row in flat.abs().unbind()]
    columns[1][1] = flat[1, 8:22:2]
    options = {**ADAMW, "step": 2, "maximize": False}
    assert_updates(optim_ref.adamw, columns, **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("p", [1.0, 2.0, float("inf"), 3.0, 0.5])
def test_powers(dtype, p):
    parts = [torch.randn(size, dtype=dtype) for size in SIZES]
    found = assert_matches_reference(
        optim_ref.powers, [*parts, parts[0].T], p, slack=40 if dtype is torch.float64 else 2
    )
    assert found[1] == 0.0
    scale = torch.tensor(0.3, dtype=torch.float64 if dtype is torch.float64 else torch.float32)
    assert_matches_reference(
        optim_ref.powers, parts, p, scale, slack=40 if dtype is torch.float64 else 2
    )


@pytest.mark.parametrize("p", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_powers_that_are_not_finite(p, bad):
    x = torch.randn(5000)
    x[4321] = bad
    found = assert_matches_reference(optim_ref.powers, [torch.ones(3), x], p)
    assert found[0].isfinite() and not found[1].isfinite()


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64], ids=str)
def test_not_finite(dtype):
    parts = [torch.ones(size, dtype=dtype) for size in [*SIZES, (3,), (3,), (5000,)]]
    parts[5][1], parts[6][2], parts[7][4321] = math.nan, math.inf, -math.inf
    parts.append(torch.full((3,), torch.finfo(dtype).max, dtype=dtype))
    for found in (
        assert_matches_reference(optim_ref.not_finite, parts),
        optim_ref.not_finite(parts),
    ):
        assert found.tolist() == [0.0] * 5 + [1.0] * 3 + [0.0]


@settings(max_examples=10)
@given(
    sizes=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    dtype=st.sampled_from([torch.bool, torch.bfloat16, torch.float32, torch.int64]),
)
def test_flatten(sizes, dtype):
    parts = [torch.randint(0, 2, (size, 3)).to(dtype).T for size in sizes]
    assert_matches_reference(optim_ref.flatten, parts)
    assert_matches_reference(
        optim_ref.flatten, [torch.ones(2, dtype=torch.complex64), torch.ones(3)]
    )
