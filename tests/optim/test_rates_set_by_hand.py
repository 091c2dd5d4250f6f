"""Rates that a program sets between the steps of schedulers: what torch makes of them.

Random programs step schedulers, set rates by hand, save and load states, and make schedulers
for an optimizer that has been trained already, in torch and here.
"""

import copy
import warnings

import numpy as np
import pytest
import torch
from drawn_schedulers import BASE_LRS, KINDS, PARTS, is_moved_cosine, schedulers
from hypothesis import given, settings, strategies as st
from lr_rates import Train, group_rates, ours, sgd, theirs, torch_sgd
from torch_oracle import needs_this_torch

import onefold as flow

ACTIONS = st.lists(
    st.one_of(
        st.just("step"),
        st.just("step"),
        st.just("load"),
        st.floats(0.01, 3.0),
    ),
    min_size=1,
    max_size=24,
)


def assert_same(mine, other, what):
    np.testing.assert_allclose(group_rates(mine), group_rates(other), 1e-6, 1e-12, err_msg=what)


def assert_same_rates(actions, make, base_lrs):
    """Both libraries have the same rates after each action.

    `make(lib, optimizer)` gives the schedulers to step.
    """
    pairs = [(ours, sgd(*base_lrs)), (theirs, torch_sgd(*base_lrs))]
    made = [[optimizer, make(lib, optimizer), lib] for lib, optimizer in pairs]
    assert_same(made[0][0], made[1][0], "at the start")
    for number, action in enumerate(actions):
        for place in made:
            act(place, action, make, base_lrs)
        assert_same(made[0][0], made[1][0], f"after action {number}, {action}")
        last = [[each.get_last_lr() for each in place[1]] for place in made]
        np.testing.assert_allclose(*last, 1e-6, 1e-12)


def act(place, action, make, base_lrs):
    optimizer, steppers, lib = place
    if action == "step":
        optimizer.step()
        for each in steppers:
            each.step()
    elif action == "load":
        states = [each.state_dict() for each in (optimizer, *steppers)]
        place[0] = (sgd if lib is ours else torch_sgd)(*base_lrs)
        place[1] = make(lib, place[0])
        for each, state in zip((place[0], *place[1]), copy.deepcopy(states), strict=True):
            each.load_state_dict(state)
    else:
        for index, group in enumerate(optimizer.param_groups):
            group["lr"] = action + index


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of the order of steps
        yield


def test_another_rate_is_noticed():
    def make(lib, optimizer):
        return [lib.ExponentialLR(optimizer, 0.5 if lib is ours else 0.25)]

    with pytest.raises(AssertionError, match="after action 1, step"):
        assert_same_rates([2.0, "step"], make, [1.0])


@pytest.mark.parametrize("name", KINDS)
def test_one_scheduler(name):
    @settings(max_examples=40)
    @given(BASE_LRS, KINDS[name], ACTIONS)
    def check(base_lrs, options, actions):
        parts = [(name, options)]
        assert_same_rates(actions, lambda lib, opt: schedulers(lib, opt, parts), base_lrs)

    check()


@given(BASE_LRS, PARTS, ACTIONS)
def test_schedulers_stepped_in_turn(base_lrs, parts, actions):
    assert_same_rates(actions, lambda lib, opt: schedulers(lib, opt, parts), base_lrs)


@given(BASE_LRS, PARTS, ACTIONS)
def test_chained_scheduler(base_lrs, parts, actions):
    def make(lib, opt):
        return [lib.ChainedScheduler(schedulers(lib, opt, parts))]

    assert_same_rates(actions, make, base_lrs)


@needs_this_torch  # versions before decay a first part of no steps
@given(BASE_LRS, PARTS, ACTIONS, st.data())
def test_sequential_lr(base_lrs, parts, actions, data):
    count = len(parts) - 1
    places = sorted(data.draw(st.sets(st.integers(0, 15), min_size=count, max_size=count)))
    if is_moved_cosine(parts, places):
        return

    def make(lib, optimizer):
        return [lib.SequentialLR(optimizer, schedulers(lib, optimizer, parts), places)]

    assert_same_rates(actions, make, base_lrs)


@given(BASE_LRS, PARTS, ACTIONS, PARTS, ACTIONS)
def test_a_scheduler_of_an_optimizer_that_had_another(base_lrs, first, before, second, after):
    pairs = [(ours, sgd(*base_lrs)), (theirs, torch_sgd(*base_lrs))]
    places = [[optimizer, schedulers(lib, optimizer, first), lib] for lib, optimizer in pairs]
    for parts, actions in ((first, before), (second, after)):
        for place in places:
            if parts is second:
                place[1] = schedulers(place[2], place[0], parts)
            for action in actions:
                if action != "load":
                    act(place, action, None, base_lrs)
        assert_same(places[0][0], places[1][0], "at the end")


@pytest.mark.parametrize("name", ["StepLR", "CosineAnnealingLR", "LinearLR", "LambdaLR"])
def test_graphs_take_the_rates_of_eager_steps(name, world):
    """The rate and the weights are equal bit for bit, and the rate is torch's."""
    options = {
        "StepLR": (2, 0.5),
        "CosineAnnealingLR": (5,),
        "LinearLR": (0.25, 1.0, 6),
        "LambdaLR": (lambda step: 1 / (step + 1),),
    }[name]
    x = flow.ones(2, 3)
    found = []
    for captured in (False, True):
        flow.manual_seed(0)
        model = flow.nn.Linear(3, 2)
        optimizer = flow.optim.AdamW(model.parameters(), lr=0.3)
        scheduler = getattr(ours, name)(optimizer, *options)
        graph = Train(model, optimizer, scheduler)
        rates = []
        for step in range(8):
            if step in (3, 5):
                optimizer.param_groups[0]["lr"] = 0.7 / step
            if captured:
                graph(x)
            else:
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
                scheduler.step()
            rates.append(group_rates(optimizer)[0])
        found.append((rates, model.weight.tolist(), model.bias.tolist()))
    assert found[0] == found[1]
    optimizer = torch_sgd(0.3)
    scheduler = getattr(theirs, name)(optimizer, *options)
    for step, rate in enumerate(found[0][0]):
        if step in (3, 5):
            optimizer.param_groups[0]["lr"] = 0.7 / step
        optimizer.step()
        scheduler.step()
        assert rate == pytest.approx(group_rates(optimizer)[0], rel=1e-9)


@pytest.mark.parametrize("name", ["StepLR", "CosineAnnealingLR", "PolynomialLR"])
def test_rates_that_are_tensors(name, world):
    options = {"PolynomialLR": {"total_iters": 9}}.get(name, {})
    args = {"StepLR": (2, 0.5), "CosineAnnealingLR": (5,)}.get(name, ())
    found = []
    for lib, make, kinds in ((ours, flow.tensor, flow), (theirs, torch.tensor, torch)):
        weight = kinds.nn.Parameter(kinds.ones(2))
        lr = make(0.3)
        optimizer = kinds.optim.SGD([weight], lr=lr)
        scheduler = getattr(lib, name)(optimizer, *args, **options)
        rates = []
        for step in range(9):
            if step == 4:
                optimizer.param_groups[0]["lr"].fill_(0.9)
            if step == 6:
                optimizer.param_groups[0]["lr"] = make(0.2)
            optimizer.step()
            scheduler.step()
            rates.append(float(optimizer.param_groups[0]["lr"]))
        found.append(rates)
    np.testing.assert_allclose(*found, 1e-5)
