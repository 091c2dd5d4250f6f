"""ChainedScheduler: several schedules at once, each of which changes the rate of the others."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose

from ..optimizer import Optimizer
from .composite import CompositeScheduler
from .recurrence import Recurrent
from .recurrent_rates import is_torchs, multiplies, rate_after
from .scheduler import LRScheduler, Schedule, held
from .together import together


class Chain(Recurrent):
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

    @property
    def recurs(self) -> bool:
        return all(map(is_torchs, self.schedules))

    def after(self, rate: float, base_lr: float, step: int) -> float:
        for schedule in self.schedules:
            rate = rate_after(schedule, rate, base_lr, step)
        return rate

    def _followed(self, base_lr: float, step: int) -> float:
        last = self._last
        known = last is not None and last[0] == base_lr and last[1] <= step
        _, done, rate = last if last is not None and known else (base_lr, -1, base_lr)
        for each in range(done + 1, step + 1):
            rate = self.after(rate, base_lr, each)
        self._last = base_lr, step, rate
        return rate


def _are_in_steps(schedules: Sequence[Schedule]) -> bool:
    """Whether all are torch's, and some do not multiply the rate."""
    return all(map(is_torchs, schedules)) and not all(map(multiplies, schedules))


class ChainedScheduler(CompositeScheduler):
    """The schedules of several schedulers at once: each works on the rate of the one before.

    Only the new scheduler is to be stepped. The rates are torch's: LambdaLR, for one, sets the
    rate, and the schedulers before it have no effect. Subclasses of users may be among them.
    Raises OnefoldValueError without schedulers.

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
        made = [Chain(given) for given in per_group]
        super().__init__(schedulers[0].optimizer, schedulers, made)

    def _next_rates(self, step: int) -> list[float]:
        rates = super()._next_rates(step)
        if not self._is_initial:
            return rates
        # Its parts have set the rates, and what was set by hand since then stays.
        columns = zip(self.optimizer.param_groups, rates, strict=True)
        present = [(float(group["lr"]), held(rate, group["lr"]), rate) for group, rate in columns]
        return [rate if isclose(now, own) else now for now, own, rate in present]

    def turns(self, step: int) -> Sequence[tuple[LRScheduler, bool]]:
        return [(part, False) for part in self._parts]
