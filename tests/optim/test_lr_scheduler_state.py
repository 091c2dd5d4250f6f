"""Schedulers in training: their states, resuming, graphs, printing, and the errors."""

import math

import numpy as np
import pytest
import torch
from lr_rates import Train, group_rates, ours, sgd, theirs

import onefold as flow
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError


def momentum_sgd(base_lrs):
    params = [flow.nn.Parameter(flow.ones(2)) for _ in base_lrs]
    groups = [{"params": [p], "lr": rate} for p, rate in zip(params, base_lrs, strict=True)]
    return params, flow.optim.SGD(groups, momentum=0.9)


def train(params, optimizer, scheduler, steps):
    """Train on a quadratic loss; returns the rates and losses."""
    seen = []
    for _ in range(steps):
        loss = sum((param * param).sum() for param in params)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metric = (loss.item(),) if isinstance(scheduler, ours.ReduceLROnPlateau) else ()
        scheduler.step(*metric)
        seen.append((group_rates(optimizer), loss.item()))
    return seen


EVERY = {
    "StepLR": lambda opt: ours.StepLR(opt, 3),
    "MultiplicativeLR": lambda opt: ours.MultiplicativeLR(opt, lambda step: 1 - 1 / (step + 1)),
    "WarmupLR": lambda opt: ours.WarmupLR(ours.CosineDecayLR(opt, 9), 0.1, 4),
    "SequentialLR": lambda opt: ours.SequentialLR(
        opt, [ours.ConstantLR(opt), ours.ExponentialLR(opt, 0.5)], [5], True
    ),
    "ChainedScheduler": lambda opt: ours.ChainedScheduler(
        [ours.ConstantLR(opt), ours.ExponentialLR(opt, 0.5)]
    ),
    "ReduceLROnPlateau": lambda opt: ours.ReduceLROnPlateau(opt, patience=0, threshold=0.3),
}


@pytest.mark.parametrize("name", EVERY)
def test_training_goes_on_from_a_state(name, world):
    base_lrs = (0.05, 0.02)
    params, optimizer = momentum_sgd(base_lrs)
    scheduler = EVERY[name](optimizer)
    train(params, optimizer, scheduler, 6)
    values = [param.numpy().copy() for param in params]
    saved = optimizer.state_dict(), scheduler.state_dict()
    wanted = train(params, optimizer, scheduler, 6)

    # Other base rates: the states bring the right ones.
    params, optimizer = momentum_sgd((1.0, 1.0))
    for param, value in zip(params, values, strict=True):
        param.data.copy_(flow.tensor(value))
    scheduler = EVERY[name](optimizer)
    optimizer.load_state_dict(saved[0])
    scheduler.load_state_dict(saved[1])
    assert scheduler.get_last_lr() == group_rates(optimizer)
    assert scheduler.state_dict() == saved[1]
    assert train(params, optimizer, scheduler, 6) == wanted


def test_training_with_a_schedule_is_torchs(world):
    weight = torch.arange(6.0).reshape(3, 2) / 6
    inputs = torch.arange(12.0).reshape(4, 3) / 12
    param, right = flow.nn.Parameter(flow.from_torch(weight)), weight.clone().requires_grad_()
    optimizer, their_optimizer = flow.optim.SGD([param], lr=0.5), torch.optim.SGD([right], lr=0.5)
    scheduler = ours.CosineAnnealingLR(optimizer, 7, 0.01)
    their_scheduler = theirs.CosineAnnealingLR(their_optimizer, 7, 0.01)
    for _ in range(10):
        optimizer.zero_grad()
        ((flow.from_torch(inputs) @ param - 1) ** 2).mean().backward()
        optimizer.step()
        scheduler.step()
        their_optimizer.zero_grad()
        ((inputs @ right - 1) ** 2).mean().backward()
        their_optimizer.step()
        their_scheduler.step()
    torch.testing.assert_close(torch.from_numpy(param.detach().numpy()), right.detach())


def test_a_graph_steps_the_schedule(world):
    model = flow.nn.Linear(2, 1, bias=False)
    start = model.weight.numpy().copy()
    optimizer = flow.optim.SGD(model.parameters(), lr=1.0)
    graph = Train(model, optimizer, ours.ExponentialLR(optimizer, 0.5))
    for _ in range(3):
        graph(flow.ones(1, 2))
    assert group_rates(optimizer) == [0.125]
    np.testing.assert_allclose(model.weight.numpy(), start - 1.75, rtol=1e-6)
    assert graph.state_dict()["System-Train-LRScheduler-Train"][0]["last_step"] == 3


def test_resuming_at_a_step():
    optimizer = sgd(1.0, 2.0)
    scheduler = ours.ExponentialLR(optimizer, 0.5)
    scheduler.step()
    again = ours.ExponentialLR(optimizer, 0.5, last_step=scheduler.last_step)
    assert (again.last_step, again.get_last_lr()) == (2, [0.25, 0.5])
    assert ours.StepLR(optimizer, 1, 0.5).base_lrs == [1.0, 2.0]  # the first scheduler's


def test_a_multiplicative_schedule_calls_its_function_once_for_each_step():
    calls = []

    def function(step):
        calls.append(step)
        return 0.5

    scheduler = ours.MultiplicativeLR(sgd(1.0, 2.0), function)
    for _ in range(4):
        scheduler.step()
    assert calls == [1, 2, 3, 4]
    assert scheduler.rates(2) == [0.25, 0.5] and scheduler.rates(5) == [0.03125, 0.0625]


def test_rates_change_nothing():
    optimizer = sgd(1.0)
    scheduler = ours.StepLR(optimizer, 2, 0.5)
    state = scheduler.state_dict()
    assert scheduler.rates(100) == [0.5**50]
    assert scheduler.state_dict() == state and group_rates(optimizer) == [1.0]


def test_what_is_returned_is_not_the_schedulers_own():
    scheduler = ours.StepLR(sgd(1.0), 2)
    scheduler.get_last_lr().append(3.0)
    scheduler.state_dict()["base_lrs"].clear()
    assert scheduler.get_last_lr() == [1.0] and scheduler.base_lrs == [1.0]


def test_verbose_prints_each_change(capsys):
    ours.ExponentialLR(sgd(1.0, 0.2), 0.5, verbose=True).step()
    assert capsys.readouterr().out.splitlines() == [
        f"Last step {step} of ExponentialLR adjusting learning rate of param_groups[{n}] to {rate}"
        for step, n, rate in ((0, 0, 1), (0, 1, 0.2), (1, 0, 0.5), (1, 1, 0.1))
    ]
    plateau = ours.ReduceLROnPlateau(sgd(1.0), patience=0, verbose=True)
    plateau.step(flow.tensor(1.0))
    assert capsys.readouterr().out == ""
    plateau.step(flow.tensor(1.0))
    assert capsys.readouterr().out.endswith("param_groups[0] to 0.1\n")


# Errors.

BAD = [
    (lambda opt: ours.StepLR(opt, 0), "StepLR: step_size must be > 0, but got 0"),
    (lambda opt: ours.StepLR(opt, -3), "StepLR: step_size must be > 0, but got -3"),
    (lambda opt: ours.StepLR(opt, 1, 0.0), "StepLR: gamma must be > 0, but got 0.0"),
    (lambda opt: ours.StepLR(opt, 1, math.nan), "StepLR: gamma must be > 0, but got nan"),
    (lambda opt: ours.ExponentialLR(opt, -1.0), "ExponentialLR: gamma must be > 0"),
    (lambda opt: ours.MultiStepLR(opt, [1], -0.5), "MultiStepLR: gamma must be > 0"),
    (lambda opt: ours.ConstantLR(opt, 1.5), r"ConstantLR: factor must be in \[0, 1\], but got 1.5"),
    (lambda opt: ours.ConstantLR(opt, 0.5, -1), "ConstantLR: total_iters must be >= 0"),
    (lambda opt: ours.LinearLR(opt, -0.1), r"LinearLR: start_factor must be in \[0, 1\]"),
    (lambda opt: ours.LinearLR(opt, 0.1, 2.0), r"LinearLR: end_factor must be in \[0, 1\]"),
    (lambda opt: ours.LinearLR(opt, 0.1, 0.2, -1), "LinearLR: total_iters must be >= 0"),
    (lambda opt: ours.PolynomialLR(opt, 0), "PolynomialLR: decay_batch must be > 0"),
    (lambda opt: ours.PolynomialLR(opt, 3, power=-1.0), "PolynomialLR: power must be >= 0"),
    (lambda opt: ours.CosineDecayLR(opt, -1), "CosineDecayLR: decay_steps must be > 0"),
    (lambda opt: ours.CosineAnnealingLR(opt, 0), "CosineAnnealingLR: T_max must be > 0"),
    (lambda opt: ours.CosineAnnealingWarmRestarts(opt, 0), "T_0 must be an integer >= 1"),
    (lambda opt: ours.CosineAnnealingWarmRestarts(opt, 2, 1.5), "T_mult must be an integer >= 1"),
    (
        lambda opt: ours.CosineAnnealingWarmRestarts(opt, 2, restart_limit=-1),
        "restart_limit must be >= 0",
    ),
    (lambda opt: ours.StepLR(opt, 1, last_step=-2), "last_step must be -1 or the number"),
    (
        lambda opt: ours.StepLR(opt, 1, last_step=4),
        r"'initial_lr' is not specified in param_groups\[0\] when resuming .* from last_step=4",
    ),
    (lambda opt: ours.LambdaLR(opt, [len]), "expected 2 schedules, one for each group, but got 1"),
    (lambda opt: ours.WarmupLR(opt, warmup_iters=-1), "WarmupLR: warmup_iters must be >= 0"),
    (lambda opt: ours.WarmupLR(opt, 2.0), r"WarmupLR: warmup_factor must be in \[0, 1\]"),
    (
        lambda opt: ours.WarmupLR(opt, warmup_method="cubic"),
        "'warmup_method' must be 'linear' or 'constant', but got 'cubic'",
    ),
    (lambda opt: ours.ChainedScheduler([]), "ChainedScheduler expects at least one scheduler"),
    (lambda opt: ours.SequentialLR(opt, [], []), "SequentialLR expects at least one scheduler"),
    (
        lambda opt: ours.ReduceLROnPlateau(opt, "least"),
        r"mode must be one of \('min', 'max'\), but got 'least'",
    ),
    (
        lambda opt: ours.ReduceLROnPlateau(opt, threshold_mode="both"),
        r"threshold_mode must be one of \('rel', 'abs'\), but got 'both'",
    ),
    (lambda opt: ours.ReduceLROnPlateau(opt, factor=1.0), "factor must be >= 0 and < 1.0"),
    (lambda opt: ours.ReduceLROnPlateau(opt, patience=-1), "patience must be >= 0"),
    (lambda opt: ours.ReduceLROnPlateau(opt, cooldown=-1), "cooldown must be >= 0"),
    (lambda opt: ours.ReduceLROnPlateau(opt, min_lr=[0.1]), "expected 2 min_lr, one for each"),
]


@pytest.mark.parametrize(("make", "text"), BAD, ids=[text for _, text in BAD])
def test_bad_options_change_nothing(make, text):
    optimizer = sgd(1.0, 2.0)
    before = repr(optimizer)
    with pytest.raises(OnefoldValueError, match=text):
        make(optimizer)
    assert repr(optimizer) == before


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ours.StepLR([], 1), "list is not an Optimizer object"),
        (lambda: ours.ReduceLROnPlateau(None), "NoneType is not an Optimizer object"),
        (lambda: ours.WarmupLR(3), "must be a LRScheduler or an Optimizer, but got int"),
        (lambda: ours.LambdaLR(sgd(1.0), 0.5), "lr_lambda must be a function of the step, .* 0.5"),
        (lambda: ours.LRScheduler(sgd(1.0), 3), r"needs a method rate\(base_lr, step\), but 3 has"),
        (
            lambda: ours.ChainedScheduler(
                [ours.StepLR(opt := sgd(1.0), 1), ours.ReduceLROnPlateau(opt)]
            ),
            "expects schedulers with a closed form, but got ReduceLROnPlateau at index 1",
        ),
    ],
)
def test_bad_types(make, text):
    with pytest.raises(OnefoldTypeError, match=text):
        make()


def test_schedulers_of_different_optimizers():
    optimizer = sgd(1.0)
    parts = [ours.StepLR(optimizer, 1), ours.ExponentialLR(sgd(1.0), 0.5)]
    text = "same optimizer, but the one at index 1, ExponentialLR, belongs to another"
    with pytest.raises(OnefoldValueError, match=f"SequentialLR.*{text}"):
        ours.SequentialLR(optimizer, parts, [3])
    with pytest.raises(OnefoldValueError, match=f"ChainedScheduler.*{text}"):
        ours.ChainedScheduler(parts)


@pytest.mark.parametrize(
    ("milestones", "rescaling", "text"),
    [
        ([2], False, "got 3 schedulers and 1 milestones"),
        ([3, 3], False, r"milestones must be increasing and >= 0, but got \[3, 3\]"),
        ([-1, 3], False, r"milestones must be increasing and >= 0, but got \[-1, 3\]"),
        ([2, 3], [True], r"a bool or one for each milestone \(2\), but got \[True\]"),
    ],
)
def test_bad_milestones(milestones, rescaling, text):
    optimizer = sgd(1.0)
    parts = [ours.StepLR(optimizer, 1) for _ in range(3)]
    with pytest.raises(OnefoldValueError, match=text):
        ours.SequentialLR(optimizer, parts, milestones, rescaling)


def test_negative_steps():
    with pytest.raises(OnefoldValueError, match="the number of steps must be >= 0, but got -1"):
        ours.StepLR(sgd(1.0), 1).rates(-1)


def test_an_error_in_a_function_changes_nothing():
    optimizer = sgd(1.0)
    scheduler = ours.LambdaLR(optimizer, lambda step: 1 / (2 - step))
    scheduler.step()
    state = scheduler.state_dict()
    with pytest.raises(ZeroDivisionError):
        scheduler.step()
    assert scheduler.state_dict() == state and group_rates(optimizer) == [1.0]
    fresh = sgd(1.0)
    with pytest.raises(ZeroDivisionError):
        ours.LambdaLR(fresh, lambda step: 1 / step)
    assert "initial_lr" not in fresh.param_groups[0]


@pytest.mark.parametrize("make", [lambda opt: ours.StepLR(opt, 1), ours.ReduceLROnPlateau])
def test_bad_states(make):
    scheduler = make(sgd(1.0))
    state = scheduler.state_dict()
    for bad, text in (
        ({**state, "gamma": 0.1}, r"has the keys .* but the given state has .*'gamma'"),
        ({"last_step": 3}, r"has the keys .* but the given state has \['last_step'\]"),
        ({**state, "_last_lr": [1.0, 2.0]}, "has 1 parameter groups, but '_last_lr' of the given"),
    ):
        with pytest.raises(OnefoldValueError, match=text):
            scheduler.load_state_dict(bad)
        assert scheduler.state_dict() == state
    with pytest.raises(OnefoldValueError, match="last_step must be >= 0, but got -1"):
        scheduler.load_state_dict({**state, "last_step": -1})


@pytest.mark.parametrize(
    "make", [lambda opt: (ours.StepLR(opt, 1), ()), lambda opt: (ours.ReduceLROnPlateau(opt), (1,))]
)
def test_groups_added_later_are_an_error(make):
    optimizer = sgd(1.0)
    scheduler, metric = make(optimizer)
    optimizer.add_param_group({"params": [flow.nn.Parameter(flow.ones(1))]})
    with pytest.raises(
        OnefoldRuntimeError, match=r"has 2 parameter groups, but this .* made for 1"
    ):
        scheduler.step(*metric)
    assert scheduler.last_step == 0


def test_errors_of_a_step_name_no_method_that_was_not_called():
    optimizer = flow.optim.SGD([flow.nn.Parameter(flow.ones(1))], lr=1.0)
    scheduler = ours.StepLR(optimizer, 2)
    with (
        pytest.warns(UserWarning, match="epoch parameter"),
        pytest.raises(OnefoldValueError, match=r"^StepLR.step: epoch"),
    ):
        scheduler.step(0.5)
    optimizer.add_param_group({"params": [flow.nn.Parameter(flow.ones(1))]})
    with pytest.raises(RuntimeError, match=r"^step: the optimizer has 2 parameter groups"):
        scheduler.step()
