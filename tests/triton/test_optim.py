"""Updates, norms and copies of many tensors in one launch."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from triton_harness import EPS, assert_matches_reference
from triton_updates import (
    DTYPES,
    SIZES,
    assert_skips,
    assert_updates,
    clones,
    kernels,
    lists,
    rule,
)

from onefold.kernels import optim_ref

ADAMW = {"betas": (0.9, 0.999), "eps": 1e-3, "weight_decay": 0.1, "lr": 0.05}
SGD = {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_adam(name, dtype, amsgrad, corrected):
    options = {**ADAMW, "amsgrad": amsgrad, "do_bias_correction": corrected}
    for maximize in (False, True):
        columns = lists(5 if amsgrad else 4, dtype)
        assert_updates(rule(name, 3, maximize=maximize, **options), columns)


def test_numbers_on_the_device():
    numbers = {"lr": torch.tensor(0.05), "scale": torch.tensor(0.25)}
    for name in ("Adam", "AdamW"):
        update = rule(name, torch.tensor(3.0), **{**ADAMW, **numbers})
        assert_updates(update, lists(4, torch.float32))
    assert_updates(rule("SGD", 2, **SGD, **numbers), lists(3, torch.float32))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_skipped_update_changes_no_bit(dtype):
    for name, count, step, options in [
        ("AdamW", 4, torch.tensor(0.0), ADAMW),
        ("AdamW", 5, 1, {**ADAMW, "amsgrad": True, "do_bias_correction": False}),
        ("Adam", 5, 1, {**ADAMW, "amsgrad": True, "do_bias_correction": False}),
        ("SGD", 3, 1, SGD),
    ]:

        def update(columns, found, name=name, step=step, options=options):
            rule(name, step, found_inf=found, **options)(columns)

        assert_skips(update, lists(count, dtype), (0, 2))


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("name", "count", "options"), [("AdamW", 4, ADAMW), ("SGD", 3, SGD), ("Adamax", 4, {})]
)
@pytest.mark.parametrize("skipped", [None, 0.0, 1.0])
def test_copies_in_half_precision(name, count, options, low, skipped):
    """They are written with the parameters, whose bits are those without copies."""
    found = None if skipped is None else torch.tensor(skipped)
    columns = lists(count, torch.float32)
    copies = [x.to(low) for x in columns[0]]
    for chosen in ("torch", "triton"):
        alone, mine, lows = clones(columns), clones(columns), clones([copies])[0]
        with kernels(chosen):
            rule(name, 3, found_inf=found, **options)(alone)
            rule(name, 3, found_inf=found, **options)(mine, lows)
        for column, with_copies in zip(alone, mine, strict=True):
            assert all(map(torch.equal, column, with_copies))
        assert all(torch.equal(a, p.to(low)) for a, p in zip(lows, mine[0], strict=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("step", [1, 2])
def test_sgd(dtype, momentum, step):
    for nesterov, maximize in ((False, True), (bool(momentum), False)):
        options = {"momentum": momentum, "weight_decay": 0.3, "nesterov": nesterov}
        options |= {"dampening": 0.0 if nesterov else 0.2, "maximize": maximize}
        assert_updates(rule("SGD", step, **options), lists(3 if momentum else 2, dtype))


def test_a_wrong_update_is_noticed():
    rates = iter([0.05, 0.05, 0.1])  # the last is Triton's

    def update(columns):
        rule("AdamW", 2, **{**ADAMW, "lr": next(rates)})(columns)

    with pytest.raises(AssertionError):
        assert_updates(update, lists(4, torch.float32))


def test_views_that_are_not_aligned():
    flat = torch.randn(4, 4101)
    columns = [[row[1:], row[:7], row[9:30]] for row in flat.abs().unbind()]
    assert_updates(rule("AdamW", 2, **ADAMW), columns)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("p", [1.0, 2.0, float("inf"), 3.0, 0.5])
def test_powers(dtype, p):
    parts = [torch.randn(size, dtype=dtype) for size in SIZES]
    # The results are float64, but the sums run in float32 for all dtypes but float64.
    rounded = dtype is not torch.float64 and p != float("inf")
    slack = 2 * EPS[torch.float32] / EPS[torch.float64] if rounded else 40
    found = assert_matches_reference(optim_ref.powers, [*parts, parts[0].T], p, slack=slack)
    assert found[1] == 0.0
    scale = torch.tensor(0.3, dtype=torch.float64 if dtype is torch.float64 else torch.float32)
    assert_matches_reference(optim_ref.powers, parts, p, scale, slack=slack)


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


@pytest.mark.parametrize("target", [*DTYPES, torch.float16, torch.int32], ids=str)
@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_cast_each(source, target):
    parts = [torch.randn(size).to(source) for size in [*SIZES, (3, 5)]]
    parts.append(torch.randn(4099).to(source)[1:])  # at an address of no multiple of 16 bytes
    for some in (parts, [*parts, parts[-2].T], [*parts, torch.ones(2, 2)]):
        assert_matches_reference(optim_ref.cast_each, some, target)
