"""SequentialLR and ChainedScheduler of users' subclasses with `get_lr()` have torch's rates."""

import pytest
from hypothesis import given, strategies as st
from lr_rates import group_rates, ours, sgd, theirs, torch_rates

from onefold.errors import OnefoldNotImplementedError, OnefoldValueError

STEPS = 14


def kinds_of(lib):
    class WarmUp(lib.LRScheduler):
        def get_lr(self):
            return [base * min(1.0, (self.last_epoch + 1) / 4) for base in self.base_lrs]

    class Shrinking(lib.LRScheduler):
        def get_lr(self):
            if self._is_initial:
                return [group["lr"] for group in self.optimizer.param_groups]
            return [group["lr"] * 0.75 for group in self.optimizer.param_groups]

    return {
        "WarmUp": WarmUp,
        "Shrinking": Shrinking,
        "LinearLR": lambda opt: lib.LinearLR(opt, 0.25, 1.0, 3),
        "StepLR": lambda opt: lib.StepLR(opt, 2, 0.5),
        "MultiplicativeLR": lambda opt: lib.MultiplicativeLR(opt, lambda step: 1 - step / 40),
        "LambdaLR": lambda opt: lib.LambdaLR(opt, lambda step: 1 / (1 + step)),
        "CosineAnnealingLR": lambda opt: lib.CosineAnnealingLR(opt, 6, 0.01),
        "CosineAnnealingWarmRestarts": lambda opt: lib.CosineAnnealingWarmRestarts(opt, 3),
    }


def parts_of(lib, opt, names):
    kinds = kinds_of(lib)
    return [kinds[name](opt) for name in names]


NAMES = st.lists(st.sampled_from([*kinds_of(ours)]), max_size=3)
WITH_USERS = st.builds(
    lambda names, user, at: [*names[:at], user, *names[at:]],
    NAMES,
    st.sampled_from(["WarmUp", "Shrinking"]),
    st.integers(0, 3),
)


def assert_torchs_steps(make, base_lrs):
    """What is set at each step is torch's; also where the state goes over to new schedulers."""
    wanted = torch_rates(lambda optimizer: make(theirs, optimizer), base_lrs, STEPS)
    optimizer = sgd(*base_lrs)
    scheduler = make(ours, optimizer)
    for step, right in enumerate(wanted):
        if step == STEPS // 2:
            saved = optimizer.state_dict(), scheduler.state_dict()
            optimizer = sgd(*base_lrs)
            scheduler = make(ours, optimizer)
            optimizer.load_state_dict(saved[0])
            scheduler.load_state_dict(saved[1])
        if step:
            scheduler.step()
        assert group_rates(optimizer) == pytest.approx(right, rel=1e-9), f"at step {step}"
        assert scheduler.get_last_lr() == group_rates(optimizer) and scheduler.last_epoch == step


@given(WITH_USERS, st.data())
def test_sequential_lr(names, data):
    count = len(names) - 1
    places = sorted(data.draw(st.sets(st.integers(0, 9), min_size=count, max_size=count)))
    assert_torchs_steps(
        lambda lib, opt: lib.SequentialLR(opt, parts_of(lib, opt, names), places), [1.0, 0.5]
    )


@given(WITH_USERS)
def test_chained_scheduler(names):
    assert_torchs_steps(
        lambda lib, opt: lib.ChainedScheduler(parts_of(lib, opt, names), optimizer=opt), [1.0, 0.5]
    )


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_parts_with_parts():
    def make(lib, opt):
        inner = lib.ChainedScheduler(parts_of(lib, opt, ["StepLR", "LinearLR"]), optimizer=opt)
        return lib.SequentialLR(opt, [inner, *parts_of(lib, opt, ["Shrinking"])], [5])

    assert_torchs_steps(make, [1.0])


def test_a_bad_call_changes_nothing():
    optimizer = sgd(1.0)
    scheduler = ours.ChainedScheduler(parts_of(ours, optimizer, ["WarmUp", "StepLR"]))
    scheduler.step()
    state = scheduler.state_dict()
    parts = state["_schedulers"]
    for bad in (parts[:1], [{**parts[0], "last_step": 7}, {}]):
        with pytest.raises(OnefoldValueError):
            scheduler.load_state_dict({**state, "_schedulers": bad})
        assert scheduler.state_dict() == state
    with (
        pytest.warns(UserWarning, match="epoch parameter"),
        pytest.raises(OnefoldNotImplementedError, match="once for each"),
    ):
        scheduler.step(5)
    with pytest.raises(OnefoldNotImplementedError, match="next step only"):
        scheduler.rates(5)
    assert scheduler.state_dict() == state and group_rates(optimizer) == [0.5]


def test_an_error_of_a_part_leaves_the_rates():
    class Failing(ours.LRScheduler):
        def get_lr(self):
            if self.last_epoch == 2:
                raise ZeroDivisionError
            return [0.25]

    optimizer = sgd(1.0)
    parts = [*parts_of(ours, optimizer, ["Shrinking"]), Failing(optimizer)]
    scheduler = ours.ChainedScheduler(parts)
    scheduler.step()
    with pytest.raises(ZeroDivisionError):
        scheduler.step()
    assert group_rates(optimizer) == [0.25] and [part.last_epoch for part in parts] == [1, 1]
