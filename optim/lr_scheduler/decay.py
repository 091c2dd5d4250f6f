"""Step, linear, polynomial and exponential schedules."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...errors import OnefoldTypeError
from ..optimizer import Optimizer
from .recurrence import Multiplying
from .scheduler import LRScheduler, check


def increasing(values: Sequence[int]) -> bool:
    """Whether every value is larger than the one before."""
    return all(a < b for a, b in pairwise(values))


@dataclass(frozen=True)
class Constant(Multiplying):
    """base_lr * factor for `total_iters` steps, then base_lr.

    As in torch, 0 steps have no end: the rate stays base_lr * factor.
    """

    factor: float = 1.0
    total_iters: int = 0

    def __post_init__(self) -> None:
        check(0 <= self.factor <= 1, "ConstantLR: factor must be in [0, 1]", self.factor)
        check(self.total_iters >= 0, "ConstantLR: total_iters must be >= 0", self.total_iters)

    def rate(self, base_lr: float, step: int) -> float:
        begun = not self.total_iters or step < self.total_iters
        return base_lr * self.factor if begun else base_lr


class ConstantLR(LRScheduler):
    """A fraction of the base rate for the first steps, then the base rate."""

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        super().__init__(
            optimizer, Constant(factor, total_iters), last_step, verbose, last_epoch=last_epoch
        )


@dataclass(frozen=True)
class Linear(Multiplying):
    """From base_lr * start_factor in a line to base_lr * end_factor at `total_iters`.

    As in torch, a line of 0 steps stays at its start.
    """

    start_factor: float
    end_factor: float
    total_iters: int

    def __post_init__(self) -> None:
        for name in ("start_factor", "end_factor"):
            factor = getattr(self, name)
            check(0 <= factor <= 1, f"LinearLR: {name} must be in [0, 1]", factor)
        check(self.total_iters >= 0, "LinearLR: total_iters must be >= 0", self.total_iters)

    def rate(self, base_lr: float, step: int) -> float:
        if not self.total_iters:
            return base_lr * self.start_factor
        if step >= self.total_iters:
            return base_lr * self.end_factor
        rise = (self.end_factor - self.start_factor) * (step / self.total_iters)
        return base_lr * (self.start_factor + rise)


class LinearLR(LRScheduler):
    """From one fraction of the base rate in a line to another, where it stays.

    >>> import onefold as flow
    >>> optimizer = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
    >>> scheduler = flow.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=4)
    >>> [scheduler.rates(step) for step in range(6)]
    [[0.5], [0.625], [0.75], [0.875], [1.0], [1.0]]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        schedule = Linear(start_factor, end_factor, total_iters)
        super().__init__(optimizer, schedule, last_step, verbose, last_epoch=last_epoch)


@dataclass(frozen=True)
class StepDecay(Multiplying):
    """base_lr * gamma^n after n times `step_size` steps."""

    step_size: int
    gamma: float

    def __post_init__(self) -> None:
        check(self.step_size > 0, "StepLR: step_size must be > 0", self.step_size)
        check(self.gamma > 0, "StepLR: gamma must be > 0", self.gamma)

    def rate(self, base_lr: float, step: int) -> float:
        return float(base_lr * self.gamma ** (step // self.step_size))


class StepLR(LRScheduler):
    """Multiplies the rate by `gamma` every `step_size` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        step_size: int,
        gamma: float = 0.1,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        super().__init__(
            optimizer, StepDecay(step_size, gamma), last_step, verbose, last_epoch=last_epoch
        )


@dataclass(frozen=True)
class MultiStep(Multiplying):
    """base_lr * gamma^n from the n-th milestone on; one that is there twice counts twice."""

    milestones: tuple[int, ...]
    gamma: float

    def __post_init__(self) -> None:
        check(self.gamma > 0, "MultiStepLR: gamma must be > 0", self.gamma)

    def rate(self, base_lr: float, step: int) -> float:
        return float(base_lr * self.gamma ** bisect_right(self.milestones, step))


class MultiStepLR(LRScheduler):
    """Multiplies the rate by `gamma` at each of the milestones, in any order, as in torch."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Sequence[int],
        gamma: float = 0.1,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        super().__init__(
            optimizer,
            MultiStep(tuple(sorted(milestones)), gamma),
            last_step,
            verbose,
            last_epoch=last_epoch,
        )


@dataclass(frozen=True)
class Exponential(Multiplying):
    """base_lr * gamma^step."""

    gamma: float

    def __post_init__(self) -> None:
        check(self.gamma > 0, "ExponentialLR: gamma must be > 0", self.gamma)

    def rate(self, base_lr: float, step: int) -> float:
        return float(base_lr * self.gamma**step)


class ExponentialLR(LRScheduler):
    """Multiplies the rate by `gamma` at every step."""

    def __init__(
        self,
        optimizer: Optimizer,
        gamma: float,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        super().__init__(optimizer, Exponential(gamma), last_step, verbose, last_epoch=last_epoch)


@dataclass(frozen=True)
class Polynomial(Multiplying):
    """(base_lr - end) * (1 - step / decay_batch)^power + end, staying at the end.

    With `cycle` the length is instead the next multiple of `decay_batch`, so that the rate rises
    again after each; then step 0 has the rate of step 1, as in OneFlow.
    """

    decay_batch: int
    end_learning_rate: float
    power: float
    cycle: bool

    def __post_init__(self) -> None:
        check(self.decay_batch > 0, "PolynomialLR: decay_batch must be > 0", self.decay_batch)
        check(self.power >= 0, "PolynomialLR: power must be >= 0", self.power)

    @property
    def recurs(self) -> bool:
        return self.end_learning_rate == 0 and not self.cycle  # torch has no other

    def rate(self, base_lr: float, step: int) -> float:
        length = self.decay_batch
        if self.cycle:
            step = max(step, 1)
            length *= math.ceil(step / length)
        left = 1 - min(step, length) / length
        end = self.end_learning_rate
        return float((base_lr - end) * left**self.power + end)


class PolynomialLR(LRScheduler):
    """From the base rate along a power of the steps left to `end_learning_rate`.

    The arguments are OneFlow's; `total_iters`, by its name, is torch's: so many steps, to 0. Raises
    OnefoldTypeError unless one of `decay_batch` and `total_iters` is given.

    >>> import onefold as flow
    >>> optimizer = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
    >>> flow.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4, power=2.0).rates(2)
    [0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        decay_batch: int | None = None,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        last_step: int = -1,
        verbose: bool = False,
        *,
        total_iters: int | None = None,
        last_epoch: int | None = None,
    ) -> None:
        if (decay_batch is None) is (total_iters is None):
            raise OnefoldTypeError(
                "PolynomialLR takes decay_batch, the number of steps to end_learning_rate, or "
                f"total_iters, the number of steps to 0, but got {decay_batch} and {total_iters}; "
                "give one of them"
            )
        if decay_batch is None:
            decay_batch, end_learning_rate = total_iters, 0.0
        assert decay_batch is not None
        schedule = Polynomial(decay_batch, end_learning_rate, power, cycle)
        super().__init__(optimizer, schedule, last_step, verbose, last_epoch=last_epoch)
