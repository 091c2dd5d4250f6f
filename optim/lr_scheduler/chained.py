"""ChainedScheduler: several schedules at once, each of which changes the rate of the others."""

from __future__ import annotations

from collections.abc import Sequence

from ..optimizer import Optimizer
from .cosine import CosineAnnealing, WarmRestarts
from .cycles import Cyclic, OneCycle
from .decay import Constant, Exponential, Linear, MultiStep, Polynomial, StepDecay
from .lambda_lr import Product, Scaled
from .scheduler import LRScheduler, Schedule
from .together import together

# In torch these set the rate, whatever it was; the cosine moves it, and the others multiply it.
_SETTING = (Scaled, WarmRestarts, Cyclic, OneCycle)
_MULTIPLYING = (Constant, Exponential, Linear, MultiStep, Polynomial, StepDecay)


class Chain:
    """Schedules that change the rate in turn at every step.

    Those that multiply it have a closed form: each takes the rate of the one before as its base.
    Where others of torch are among them, the rate depends on the rate one step before. It is
    remembered, so that the next step computes one.
    """

    def __init__(self, schedules: Sequence[Schedule]) -> None:
        self.schedules = tuple(schedules)
        self._in_steps = _are_in_steps(self.schedules)
        self._last: tuple[float, int, float] | None = None  # base rate, step, rate

    def rate(self, base_lr: float, step: int) -> float:
        if self._in_steps:
            return self._followed(base_lr, step)
        for schedule in self.schedules:
            base_lr = schedule.rate(base_lr, step)
        return base_lr

    def _followed(self, base_lr: float, step: int) -> float:
        last = self._last
        known = last is not None and last[0] == base_lr and last[1] <= step
        _, done, rate = last if last is not None and known else (base_lr, -1, base_lr)
        for each in range(done + 1, step + 1):
            for schedule in self.schedules:
                rate = _after(schedule, rate, base_lr, each)
        self._last = base_lr, step, rate
        return rate


def _are_in_steps(schedules: Sequence[Schedule]) -> bool:
    """Whether all are torch's, and some do not multiply the rate."""
    special = (*_SETTING, CosineAnnealing)
    torchs = all(
        isinstance(each, (*special, Product)) or (isinstance(each, _MULTIPLYING) and _scales(each))
        for each in schedules
    )
    return torchs and any(isinstance(each, special) for each in schedules)


def _scales(schedule: Schedule) -> bool:
    """Whether the rate is a multiple of the base rate that does not start as 0."""
    if isinstance(schedule, Polynomial) and (schedule.end_learning_rate != 0 or schedule.cycle):
        return False
    return schedule.rate(1.0, 0) > 0


def _after(schedule: Schedule, rate: float, base_lr: float, step: int) -> float:
    """The rate that a schedule makes of `rate` at a step."""
    if isinstance(schedule, Cyclic) and step == 0:
        return base_lr  # as torch's constructor leaves it, whatever the cycle begins with
    if isinstance(schedule, _SETTING):
        return schedule.rate(base_lr, step)
    if isinstance(schedule, CosineAnnealing):
        return schedule.after(rate, base_lr, step)
    if isinstance(schedule, Product):
        return rate * schedule.factor(step) if step else rate
    if step == 0:
        return rate * schedule.rate(1.0, 0)
    before = schedule.rate(1.0, step - 1)
    return rate * schedule.rate(1.0, step) / before if before else rate


class ChainedScheduler(LRScheduler):
    """The schedules of several schedulers at once: each works on the rate of the one before.

    Only the new scheduler is to be stepped. The rates are torch's: LambdaLR, for one, sets the
    rate, and the schedulers before it have no effect. Raises OnefoldValueError without schedulers.

    >>> import onefold as flow
    >>> from onefold.optim.lr_scheduler import ChainedScheduler, ExponentialLR, StepLR
    >>> optimizer = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
    >>> parts = [StepLR(optimizer, 2, gamma=0.5), ExponentialLR(optimizer, 0.5)]
    >>> ChainedScheduler(parts).rates(2)
    [0.125]
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if optimizer is None and schedulers:
            optimizer = schedulers[0].optimizer
        per_group = together("ChainedScheduler", optimizer, schedulers)
        super().__init__(schedulers[0].optimizer, [Chain(given) for given in per_group])
