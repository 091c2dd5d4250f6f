"""Learning rate schedules against torch's, step by step, or else against the published formula."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from lr_rates import (
    STEPS,
    assert_formula,
    assert_same_rates,
    assert_torchs,
    group_rates,
    ours,
    sgd,
    theirs,
    torch_rates,
    torch_sgd,
)

BASE_LRS = st.lists(st.floats(1e-3, 10.0), min_size=1, max_size=3)
FACTORS = st.floats(0.0625, 1.0)
LENGTHS = st.integers(1, 12)
GAMMAS = st.floats(0.3, 1.2)


# The checkers.


def test_a_wrong_rate_is_noticed():
    with pytest.raises(AssertionError, match="at step 2"):
        assert_torchs(lambda lib, opt: lib.StepLR(opt, 2 if lib is ours else 3, 0.5), [1.0])
    with pytest.raises(AssertionError, match="at step 0"):
        assert_formula(lambda opt: ours.ExponentialLR(opt, 0.5), lambda base, step: 2 * base, [1.0])


# Schedules that torch has too.


@given(BASE_LRS, st.data())
def test_constant_lr(base_lrs, data):
    factor, total = data.draw(FACTORS), data.draw(st.integers(0, 12))
    assert_torchs(lambda lib, opt: lib.ConstantLR(opt, factor, total), base_lrs)


@given(BASE_LRS, st.data())
def test_linear_lr(base_lrs, data):
    options = data.draw(FACTORS), data.draw(st.floats(0.0625, 1.0)), data.draw(st.integers(0, 12))
    assert_torchs(lambda lib, opt: lib.LinearLR(opt, *options), base_lrs)


@given(BASE_LRS, st.data())
def test_step_lr(base_lrs, data):
    options = data.draw(LENGTHS), data.draw(GAMMAS)
    assert_torchs(lambda lib, opt: lib.StepLR(opt, *options), base_lrs)


@given(BASE_LRS, st.data())
def test_multi_step_lr(base_lrs, data):
    milestones = data.draw(st.lists(st.integers(0, STEPS + 2), max_size=5))
    gamma = data.draw(GAMMAS)
    assert_torchs(lambda lib, opt: lib.MultiStepLR(opt, milestones, gamma), base_lrs)


@given(BASE_LRS, GAMMAS)
def test_exponential_lr(base_lrs, gamma):
    assert_torchs(lambda lib, opt: lib.ExponentialLR(opt, gamma), base_lrs)


@given(BASE_LRS, st.data())
def test_cosine_annealing_lr(base_lrs, data):
    """torch goes on from the rate before, which adds up rounding errors."""
    options = data.draw(LENGTHS), data.draw(st.floats(0.0, 1e-3))
    assert_torchs(lambda lib, opt: lib.CosineAnnealingLR(opt, *options), base_lrs, 1e-6)


@given(BASE_LRS, st.data())
def test_cosine_annealing_warm_restarts(base_lrs, data):
    options = data.draw(LENGTHS), data.draw(st.integers(1, 3)), data.draw(st.floats(0.0, 1e-3))
    assert_torchs(lambda lib, opt: lib.CosineAnnealingWarmRestarts(opt, *options), base_lrs)


@given(BASE_LRS, st.data())
def test_polynomial_lr_to_zero(base_lrs, data):
    """torch's ends at 0 only, and adds up rounding errors."""
    length, power = data.draw(LENGTHS), data.draw(st.floats(0.5, 3.0))
    wanted = torch_rates(lambda opt: theirs.PolynomialLR(opt, length, power), base_lrs)
    optimizer = sgd(*base_lrs)
    scheduler = ours.PolynomialLR(optimizer, length, 0.0, power)
    assert_same_rates(scheduler, optimizer, wanted, 1e-6)


@given(BASE_LRS, st.sampled_from(["LambdaLR", "MultiplicativeLR"]), st.booleans())
def test_functions_of_the_step(base_lrs, name, one_each):
    given = [lambda step, n=n: 1.0 / (1 + n + step % 5) for n in range(len(base_lrs))]
    functions = given if one_each else given[0]
    assert_torchs(lambda lib, opt: getattr(lib, name)(opt, functions), base_lrs)


SIMPLE = (
    lambda lib, opt: lib.ConstantLR(opt, 0.25, 3),
    lambda lib, opt: lib.LinearLR(opt, 0.5, 0.75, 4),
    lambda lib, opt: lib.StepLR(opt, 3, 0.5),
    lambda lib, opt: lib.MultiStepLR(opt, [2, 7], 0.5),
    lambda lib, opt: lib.ExponentialLR(opt, 0.9),
    lambda lib, opt: lib.LambdaLR(opt, lambda step: 1 / (1 + step)),
)


@given(BASE_LRS, st.lists(st.sampled_from(SIMPLE), min_size=1, max_size=4), st.data())
def test_sequential_lr_with_rescaling(base_lrs, parts, data):
    milestones = st.sets(
        st.integers(1, STEPS), min_size=len(parts) - 1, max_size=len(parts) - 1
    ).map(sorted)
    places = data.draw(milestones)

    def make(lib, opt):
        rescaling = {"interval_rescaling": True} if lib is ours else {}
        return lib.SequentialLR(opt, [part(lib, opt) for part in parts], places, **rescaling)

    assert_torchs(make, base_lrs)


@given(BASE_LRS, st.lists(st.sampled_from(SIMPLE[:-1]), min_size=1, max_size=4))
def test_chained_scheduler(base_lrs, parts):
    assert_torchs(
        lambda lib, opt: lib.ChainedScheduler([part(lib, opt) for part in parts]), base_lrs
    )


@given(BASE_LRS, st.data())
def test_warmup_of_an_optimizer(base_lrs, data):
    factor, iters = data.draw(FACTORS), data.draw(LENGTHS)
    method, name = data.draw(st.sampled_from([("linear", "LinearLR"), ("constant", "ConstantLR")]))
    optimizer = sgd(*base_lrs)
    options = {"linear": (factor, 1.0, iters), "constant": (factor, iters)}[method]
    wanted = torch_rates(lambda opt: getattr(theirs, name)(opt, *options), base_lrs)
    assert_same_rates(ours.WarmupLR(optimizer, factor, iters, method), optimizer, wanted)


@given(BASE_LRS, st.sampled_from(SIMPLE), st.data())
def test_warmup_before_a_scheduler(base_lrs, part, data):
    """With a prefix the scheduler starts after the warmup: torch's LinearLR or ConstantLR first."""
    factor, iters = data.draw(FACTORS), data.draw(LENGTHS)
    method, name = data.draw(st.sampled_from([("linear", "LinearLR"), ("constant", "ConstantLR")]))
    options = {"linear": (factor, 1.0, iters), "constant": (factor, iters)}[method]

    def make(opt):
        first = getattr(theirs, name)(opt, *options)
        return theirs.SequentialLR(opt, [first, part(theirs, opt)], [iters])

    optimizer = sgd(*base_lrs)
    scheduler = ours.WarmupLR(part(ours, optimizer), factor, iters, method, warmup_prefix=True)
    assert_same_rates(scheduler, optimizer, torch_rates(make, base_lrs))


@given(
    st.lists(st.sampled_from([1.0, 1.00005, 1.5, 2.0, 0.5, float("nan")]), max_size=40),
    st.fixed_dictionaries(
        {
            "mode": st.sampled_from(["min", "max"]),
            "factor": st.sampled_from([0.0, 0.1, 0.5]),
            "patience": st.integers(0, 4),
            "threshold": st.sampled_from([0.0, 1e-4, 0.3]),
            "threshold_mode": st.sampled_from(["rel", "abs"]),
            "cooldown": st.integers(0, 3),
            "min_lr": st.sampled_from([0.0, 1e-3, [1e-3, 0.5]]),
            "eps": st.sampled_from([1e-8, 0.2]),
        }
    ),
)
def test_reduce_lr_on_plateau(metrics, options):
    optimizer, right = sgd(1.0, 0.3), torch_sgd(1.0, 0.3)
    found = ours.ReduceLROnPlateau(optimizer, **options)
    wanted = theirs.ReduceLROnPlateau(right, **options)
    for metric in metrics:
        found.step(metric)
        wanted.step(metric)
        assert group_rates(optimizer) == group_rates(right)
        assert found.get_last_lr() == wanted.get_last_lr()
        assert (found.best, found.num_bad_epochs, found.last_step, found.in_cooldown) == (
            wanted.best,
            wanted.num_bad_epochs,
            wanted.last_epoch,
            wanted.in_cooldown,
        )


# Schedules of OneFlow: its published formulas.


@given(BASE_LRS, LENGTHS, st.floats(0.0, 1.0))
def test_cosine_decay_lr(base_lrs, length, alpha):
    def formula(base, step):
        cosine = 0.5 * (1 + np.cos(np.pi * min(step, length) / length))
        return base * ((1 - alpha) * cosine + alpha)

    assert_formula(lambda opt: ours.CosineDecayLR(opt, length, alpha), formula, base_lrs)


@given(BASE_LRS, LENGTHS, st.floats(0.0, 1e-3), st.floats(0.5, 3.0), st.booleans())
def test_polynomial_lr(base_lrs, length, end, power, cycle):
    def formula(base, step):
        batch = max(step, 1) if cycle else min(step, length)
        decay = length * np.ceil(batch / length) if cycle else length
        return (base - end) * (1 - batch / decay) ** power + end

    assert_formula(lambda opt: ours.PolynomialLR(opt, length, end, power, cycle), formula, base_lrs)


@given(BASE_LRS, st.integers(1, 4), st.integers(1, 3), st.floats(0.3, 1.0), st.integers(0, 4))
def test_warm_restarts_with_decay_and_a_limit(base_lrs, first, mult, decay, limit):
    eta_min = 1e-3
    cycles = [first * mult**n for n in range(STEPS)]  # brute force: every step of every cycle
    places = [
        (n, k / size) for n, size in enumerate(cycles[:STEPS]) for k in range(min(size, STEPS))
    ]

    def formula(base, step):
        n, part = places[step]
        if limit and n >= limit:
            return eta_min
        return eta_min + 0.5 * (base * decay**n - eta_min) * (1 + np.cos(np.pi * part))

    assert_formula(
        lambda opt: ours.CosineAnnealingWarmRestarts(opt, first, mult, eta_min, decay, limit),
        formula,
        base_lrs,
    )


def test_warm_restarts_are_exact_where_logarithms_are_not():
    """Every restart of a growing cycle is at the full rate, the step before it is not."""
    scheduler = ours.CosineAnnealingWarmRestarts(sgd(1.0), 3, T_mult=5)
    for start in itertools.accumulate(3 * 5**n for n in range(12)):
        assert scheduler.rates(start) == [1.0] != scheduler.rates(start - 1)


@given(BASE_LRS, st.lists(st.sampled_from(SIMPLE), min_size=2, max_size=4), st.data())
def test_sequential_lr_sharing_the_step(base_lrs, parts, data):
    count = len(parts) - 1
    places = sorted(data.draw(st.sets(st.integers(0, STEPS), min_size=count, max_size=count)))
    rescaling = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    optimizer = sgd(*base_lrs)
    schedulers = [part(ours, optimizer) for part in parts]
    wanted = []
    for step in range(STEPS):
        index = sum(place <= step for place in places)
        shift = places[index - 1] if index and rescaling[index - 1] else 0
        wanted.append(schedulers[index].rates(step - shift))
    scheduler = ours.SequentialLR(optimizer, schedulers, places, rescaling)
    assert_same_rates(scheduler, optimizer, wanted)


@given(BASE_LRS, st.sampled_from(SIMPLE), st.data())
def test_warmup_into_a_running_schedule(base_lrs, part, data):
    """Without a prefix the line ends where the schedule is by then, for every group."""
    factor, iters = data.draw(FACTORS), data.draw(LENGTHS)
    method = data.draw(st.sampled_from(["linear", "constant"]))
    optimizer = sgd(*base_lrs)
    inner = part(ours, optimizer)
    starts, ends = factor * np.array(base_lrs), np.array(inner.rates(iters))
    slope = (ends - starts) / iters if method == "linear" else 0.0
    wanted = [starts + slope * s if s < iters else inner.rates(s) for s in range(STEPS)]
    assert_same_rates(ours.WarmupLR(inner, factor, iters, method), optimizer, wanted)


def test_warmup_without_steps_is_the_schedule_itself():
    optimizer = sgd(1.0)
    scheduler = ours.WarmUpLR(ours.ExponentialLR(optimizer, 0.5), warmup_iters=0)
    assert_same_rates(scheduler, optimizer, [[1.0], [0.5], [0.25]])


def test_composites_of_composites():
    optimizer = sgd(1.0, 2.0)
    cosine = ours.WarmupLR(ours.CosineDecayLR(optimizer, 4), 0.5, 2, warmup_prefix=True)
    decayed = ours.ChainedScheduler([cosine, ours.StepLR(optimizer, 1, 0.5)])
    scheduler = ours.SequentialLR(optimizer, [decayed, ours.ConstantLR(optimizer, 0.1, 99)], [4])
    first = [0.5, 0.75 * 0.5, 1.0 * 0.25, 0.5 * (1 + math.cos(math.pi / 4)) * 0.125, 0.1, 0.1]
    assert_same_rates(scheduler, optimizer, [[rate, 2 * rate] for rate in first])


def test_names_and_defaults_are_oneflows():
    assert ours.WarmUpLR is ours.WarmupLR
    optimizer = sgd(0.3)
    for make, schedule in (
        (ours.ConstantLR, "Constant(factor=0.3333333333333333, total_iters=5)"),
        (ours.LinearLR, "Linear(start_factor=0.3333333333333333, end_factor=1.0, total_iters=5)"),
        (lambda opt: ours.StepLR(opt, step_size=3), "StepDecay(step_size=3, gamma=0.1)"),
        (
            lambda opt: ours.PolynomialLR(opt, decay_batch=3),
            "Polynomial(decay_batch=3, end_learning_rate=0.0001, power=1.0, cycle=False)",
        ),
        (
            lambda opt: ours.CosineDecayLR(opt, decay_steps=3),
            "CosineDecay(decay_steps=3, alpha=0.0)",
        ),
        (
            lambda opt: ours.CosineAnnealingLR(opt, T_max=3),
            "CosineAnnealing(T_max=3, eta_min=0.0)",
        ),
        (
            lambda opt: ours.CosineAnnealingWarmRestarts(opt, T_0=3),
            "WarmRestarts(T_0=3, T_mult=1, eta_min=0.0, decay_rate=1.0, restart_limit=0)",
        ),
        (
            ours.WarmupLR,
            "Warmup(after=Constant(factor=1.0, total_iters=0), factor=0.3333333333333333, iters=5, "
            "method='linear', prefix=False)",
        ),
    ):
        assert repr(make(optimizer).schedules) == f"({schedule},)"
