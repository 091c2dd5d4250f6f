"""Schedules of users in torch's form and OneFlow's: subclasses of LRScheduler with `get_lr`."""

import math

import numpy as np
import pytest
import torch
from lr_rates import Train

import onefold as flow
from onefold.errors import OnefoldNotImplementedError, OnefoldTypeError
from onefold.optim import lr_scheduler as ours


def kinds_of(lib):
    """Subclasses as programs for torch have them."""
    scheduler = lib.optim.lr_scheduler

    class WarmCos(scheduler._LRScheduler):
        def __init__(self, optimizer, warm, total, last_epoch=-1):
            self.warm, self.total = warm, total
            super().__init__(optimizer, last_epoch)

        def get_lr(self):
            epoch = self.last_epoch
            if epoch < self.warm:
                return [base * (epoch + 1) / self.warm for base in self.base_lrs]
            part = math.pi * (epoch - self.warm) / (self.total - self.warm)
            groups = self.optimizer.param_groups
            return [group["initial_lr"] * (1 + math.cos(part)) / 2 for group in groups]

    class FromTheRateBefore(scheduler.LRScheduler):
        def get_lr(self):
            assert self._get_lr_called_within_step
            factor = 1.0 if self._is_initial else 0.9
            return [group["lr"] * factor for group in self.optimizer.param_groups]

    class Stepping(scheduler.LRScheduler):
        def get_lr(self):
            return [base / (1 + self.last_epoch) for base in self.base_lrs]

        def step(self, epoch=None):
            self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
            for group, rate in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
                group["lr"] = rate
            self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    class OfStepLR(scheduler.StepLR):
        def get_lr(self):
            return [base / 2**self.last_epoch for base in self.base_lrs]

    class CountsSteps(scheduler.LRScheduler):
        def get_lr(self):
            if self._step_count < 4:
                self.last = [base * self._step_count / 4 for base in self.base_lrs]
            return self.last

    return (
        CountsSteps,
        lambda opt: WarmCos(opt, 3, 9),
        FromTheRateBefore,
        lambda opt: Stepping(opt, last_epoch=-1),
        lambda opt: OfStepLR(opt, 3),
    )


def optimizer_of(lib, rates=(1.0, 0.5)):
    groups = [{"params": [lib.nn.Parameter(lib.ones(2))], "lr": rate} for rate in rates]
    return lib.optim.SGD(groups, lr=1.0)


@pytest.mark.parametrize("index", range(5))
def test_rates_are_torchs(index):
    seen = []
    for lib in (flow, torch):
        optimizer = optimizer_of(lib)
        scheduler = kinds_of(lib)[index](optimizer)
        found = []
        for _ in range(9):
            found += [group["lr"] for group in optimizer.param_groups]
            optimizer.step()
            scheduler.step()
            found += [*scheduler.get_last_lr(), scheduler.last_epoch]
        seen.append(found)
    assert seen[0] == pytest.approx(seen[1], rel=1e-12)


@pytest.mark.parametrize("index", range(5))
def test_training_goes_on_from_a_state(index):
    optimizer = optimizer_of(flow)
    scheduler = kinds_of(flow)[index](optimizer)
    for _ in range(4):
        scheduler.step()
    saved = optimizer.state_dict(), scheduler.state_dict()
    wanted = [(scheduler.step(), scheduler.get_last_lr()) for _ in range(4)]
    other = optimizer_of(flow, (3.0, 3.0))
    again = kinds_of(flow)[index](other)
    other.load_state_dict(saved[0])
    again.load_state_dict(saved[1])
    assert [(again.step(), again.get_last_lr()) for _ in range(4)] == wanted


def test_attributes_of_users_are_in_the_state():
    class Keeping(ours.LRScheduler):
        def __init__(self, optimizer):
            self.seen = []
            super().__init__(optimizer)

        def get_lr(self):
            self.seen.append(self.last_epoch)
            return [1.0, 1.0]

    scheduler = Keeping(optimizer_of(flow))
    scheduler.step()
    other = Keeping(optimizer_of(flow))
    other.load_state_dict(scheduler.state_dict())
    assert other.seen == [0, 1]


def test_oneflows_form_is_a_schedule():
    class Divided(ours.LRScheduler):
        def __init__(self, optimizer, last_step=-1, verbose=False):
            super().__init__(optimizer, last_step, verbose)

        def get_lr(self, base_lr, step):
            return base_lr / (1 + step)

    optimizer = optimizer_of(flow)
    scheduler = Divided(optimizer)
    scheduler.step()
    assert scheduler.get_last_lr() == [0.5, 0.25] and scheduler.rates(3) == [0.25, 0.125]
    both = ours.SequentialLR(optimizer, [ours.ConstantLR(optimizer, 0.5, 9), scheduler], [2])
    assert both.rates(3) == [0.5, 0.25]


@pytest.mark.parametrize("index", range(5))
def test_in_a_graph(index, world):
    seen = []
    for graph in (False, True):
        model = flow.nn.Linear(2, 1, bias=False)
        model.weight.data.fill_(1.0)
        optimizer = flow.optim.SGD(model.parameters(), lr=1.0)
        scheduler = kinds_of(flow)[index](optimizer)
        call = Train(model, optimizer, scheduler) if graph else model
        for _ in range(4):
            if graph:
                call(flow.ones(1, 2))
            else:
                optimizer.zero_grad()
                call(flow.ones(1, 2)).sum().backward()
                optimizer.step()
                scheduler.step()
        seen.append((optimizer.param_groups[0]["lr"], model.weight.numpy().copy()))
    assert seen[0][0] == seen[1][0]
    np.testing.assert_allclose(seen[0][1], seen[1][1], rtol=1e-6)


def test_errors():
    class One(ours.LRScheduler):
        rate = (1.0, 1.0)

        def get_lr(self):
            return self.rate

    class Bad(One):
        rate = 3.0

    optimizer = optimizer_of(flow)
    with pytest.raises(OnefoldTypeError, match=r"Bad.get_lr\(\) must return a list with a rate"):
        Bad(optimizer)
    with pytest.raises(OnefoldTypeError, match=r"Short.get_lr\(\) .* the 2 .*returned \[1.0\]"):
        type("Short", (One,), {"rate": [1.0]})(optimizer)
    for arguments in ((), (-1,)):
        with pytest.raises(OnefoldTypeError, match=r"rate\(base_lr, step\).*LambdaLR.*get_lr"):
            ours.LRScheduler(optimizer, *arguments)
    with pytest.raises(OnefoldNotImplementedError, match=r"get_last_lr\(\)"):
        ours.StepLR(optimizer, 2).get_lr()
    with pytest.raises(OnefoldNotImplementedError, match=r"get_lr\(self, base_lr, step\)"):
        One(optimizer).rates(3)
    steps = type("Steps", (One,), {"step": lambda self: None})
    for make in (
        lambda: ours.SequentialLR(optimizer, [One(optimizer)], [], True),
        lambda: ours.WarmupLR(One(optimizer)),
    ):
        with pytest.raises(OnefoldTypeError, match=r"One gives .* by get_lr.*rate\(base_"):
            make()
    with pytest.raises(OnefoldTypeError, match=r"but Steps gives .* by step\(\)"):
        ours.ChainedScheduler([steps(optimizer)])


def test_the_old_name():
    assert ours._LRScheduler is ours.LRScheduler
