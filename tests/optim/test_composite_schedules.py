"""SequentialLR and ChainedScheduler of every kind of scheduler have torch's rates."""

import warnings

import pytest
from drawn_schedulers import BASE_LRS, KINDS, PARTS, is_moved_cosine, schedulers
from hypothesis import given, strategies as st
from lr_rates import assert_same_rates, assert_torchs, ours, sgd, theirs, torch_rates, torch_sgd

DEPRECATED = r"epoch parameter in `scheduler.step\(\)`"


@given(BASE_LRS, PARTS, st.data())
def test_sequential_lr(base_lrs, parts, data):
    count = len(parts) - 1
    places = sorted(data.draw(st.sets(st.integers(0, 25), min_size=count, max_size=count)))
    if is_moved_cosine(parts, places):
        return
    assert_torchs(
        lambda lib, opt: lib.SequentialLR(opt, schedulers(lib, opt, parts), places), base_lrs, 1e-6
    )


@given(BASE_LRS, PARTS)
def test_chained_scheduler(base_lrs, parts):
    assert_torchs(
        lambda lib, opt: lib.ChainedScheduler(schedulers(lib, opt, parts), optimizer=opt),
        base_lrs,
        1e-6,
    )


def test_warm_up_and_cosine():
    """The standard recipe, to the digits that torch has."""

    def make(lib, opt):
        parts = [lib.LinearLR(opt, 0.1, 1.0, 3), lib.CosineAnnealingLR(opt, 9)]
        return lib.SequentialLR(opt, parts, [3])

    assert_torchs(make, [1.0])
    found = make(ours, sgd(1.0))
    assert [round(found.rates(step)[0], 3) for step in range(6)] == [
        0.1,
        0.4,
        0.7,
        1.0,
        0.97,
        0.883,
    ]


def test_oneflows_argument_keeps_its_meaning():
    optimizer = sgd(1.0)
    parts = [ours.ConstantLR(optimizer, 0.5, 9), ours.ExponentialLR(optimizer, 0.5)]
    own = {None: 0.5, True: 0.5, False: 0.125, (True,): 0.5, (False,): 0.125}
    for rescaling, wanted in own.items():
        assert ours.SequentialLR(optimizer, parts, [2], rescaling).rates(3) == [wanted]


def test_a_chain_goes_on_from_any_step():
    """Rates that follow the step before are the same in any order, and after a state."""
    optimizer = sgd(1.0, 0.5)

    def make():
        parts = [ours.CosineAnnealingLR(optimizer, 4, 0.01), ours.ExponentialLR(optimizer, 0.9)]
        return ours.ChainedScheduler(parts)

    scheduler = make()
    forth = [scheduler.rates(step) for step in range(20)]
    assert [scheduler.rates(step) for step in reversed(range(20))] == forth[::-1]
    for _ in range(7):
        scheduler.step()
    other = make()
    other.load_state_dict(scheduler.state_dict())
    other.step()
    assert other.get_last_lr() == forth[8]


@pytest.mark.parametrize(
    "parts",
    [
        lambda opt: [ours.LinearLR(opt, 0.0, 1.0, 4), ours.CosineAnnealingLR(opt, 20)],
        lambda opt: [ours.WarmupLR(opt, 0.0, 4), ours.CosineAnnealingLR(opt, 20)],
    ],
)
def test_a_chain_may_start_at_zero(parts):
    """torch has no such warm-up: a multiple of the rate before would stay 0."""
    scheduler = ours.ChainedScheduler(parts(sgd(1.0)))
    assert scheduler.rates(0) == [0.0] and scheduler.rates(5)[0] > 0.8


# Steps to an epoch.


@pytest.mark.parametrize(
    "name", [name for name in KINDS if name not in ("MultiplicativeLR", "OneCycleLR")]
)
@given(data=st.data())
def test_step_to_an_epoch(name, data):
    options = data.draw(KINDS[name])
    epochs = data.draw(st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=6))
    chainable = name in ("CosineAnnealingLR", "LinearLR", "ConstantLR", "PolynomialLR")
    if chainable:  # torch goes on by a factor, which is 0 / 0 at an end that a step jumped over
        epochs = [0 if epoch is None else epoch for epoch in epochs]

    def rates(lib, optimizer):
        (scheduler,) = schedulers(lib, optimizer, [(name, options)])
        found = []
        for epoch in epochs:
            scheduler.step(epoch)
            found.append((scheduler.last_epoch, *scheduler.get_last_lr()))
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = rates(theirs, torch_sgd(1.0))
        assert rates(ours, sgd(1.0)) == [pytest.approx(each, rel=1e-6) for each in wanted]


def test_warm_restarts_take_parts_of_epochs():
    """torch's way to step it in every batch; without a warning."""
    epochs = [step / 4 for step in range(40)]

    def make(lib, optimizer):
        scheduler = lib.CosineAnnealingWarmRestarts(optimizer, 2, 2, 0.01)
        found = []
        for epoch in epochs:
            scheduler.step(epoch)
            found.append((scheduler.last_epoch, *scheduler.get_last_lr()))
        return found

    wanted = make(theirs, torch_sgd(1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make(ours, sgd(1.0)) == [pytest.approx(each) for each in wanted]


def test_an_epoch_is_a_warning_or_an_error():
    optimizer = sgd(1.0)
    for call in (
        lambda: ours.StepLR(optimizer, 2).step(3),
        lambda: ours.ReduceLROnPlateau(optimizer).step(1.0, 3),
    ):
        with pytest.warns(UserWarning, match=DEPRECATED) as found:
            call()
        assert found[0].filename == __file__
    plateau = ours.ReduceLROnPlateau(optimizer)
    with pytest.warns(UserWarning, match=DEPRECATED):
        plateau.step(1.0, epoch=7)
    assert plateau.last_epoch == 7
    with (
        pytest.warns(UserWarning, match=DEPRECATED),
        pytest.raises(ValueError, match="must be a whole number"),
    ):
        ours.StepLR(optimizer, 2).step(2.5)
    product = ours.MultiplicativeLR(optimizer, lambda step: 0.5)
    with (
        pytest.warns(UserWarning, match=DEPRECATED),
        pytest.raises(NotImplementedError, match=r"call step\(\) once"),
    ):
        product.step(2)


def test_polynomial_lr_by_torchs_name():
    options = {"total_iters": 5, "power": 2.0}
    wanted = torch_rates(lambda opt: theirs.PolynomialLR(opt, **options), [1.0])
    optimizer = sgd(1.0)
    assert_same_rates(ours.PolynomialLR(optimizer, **options), optimizer, wanted)
    for bad in ({}, {"decay_batch": 5, "total_iters": 5}):
        with pytest.raises(TypeError, match=r"PolynomialLR takes decay_batch.*give one of them"):
            ours.PolynomialLR(optimizer, **bad)
