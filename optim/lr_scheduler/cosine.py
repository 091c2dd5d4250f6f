"""Cosine schedules: a single decay, annealing, and warm restarts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..optimizer import Optimizer
from .recurrence import Recurrent
from .scheduler import LRScheduler, check


def half_cosine(part: float) -> float:
    """1 at 0, 0 at 1, along half a period of the cosine."""
    return 0.5 * (1.0 + math.cos(math.pi * part))


@dataclass(frozen=True)
class CosineDecay:
    """From base_lr along half a cosine to base_lr * alpha at `decay_steps`."""

    decay_steps: int
    alpha: float

    def __post_init__(self) -> None:
        check(self.decay_steps > 0, "CosineDecayLR: decay_steps must be > 0", self.decay_steps)

    def rate(self, base_lr: float, step: int) -> float:
        if step >= self.decay_steps:
            return base_lr * self.alpha
        return base_lr * ((1 - self.alpha) * half_cosine(step / self.decay_steps) + self.alpha)


class CosineDecayLR(LRScheduler):
    """From the base rate along half a cosine to its fraction `alpha`, where it stays."""

    def __init__(
        self,
        optimizer: Optimizer,
        decay_steps: int,
        alpha: float = 0.0,
        last_step: int = -1,
        verbose: bool = False,
    ) -> None:
        super().__init__(optimizer, CosineDecay(decay_steps, alpha), last_step, verbose)


@dataclass(frozen=True)
class CosineAnnealing(Recurrent):
    """A cosine between base_lr and eta_min with a period of 2 * T_max steps."""

    T_max: int
    eta_min: float

    def __post_init__(self) -> None:
        check(self.T_max > 0, "CosineAnnealingLR: T_max must be > 0", self.T_max)

    def rate(self, base_lr: float, step: int) -> float:
        return self.eta_min + (base_lr - self.eta_min) * half_cosine(step / self.T_max)

    def after(self, rate: float, base_lr: float, step: int) -> float:
        if step == 0:
            return rate
        if (step - 1 - self.T_max) % (2 * self.T_max) == 0:  # it was at the lower end
            return rate + (base_lr - self.eta_min) * (1 - half_cosine(1 / self.T_max))
        part = half_cosine(step / self.T_max) / half_cosine((step - 1) / self.T_max)
        return part * (rate - self.eta_min) + self.eta_min


class CosineAnnealingLR(LRScheduler):
    """From the base rate along a cosine to `eta_min` at `T_max`, and back again after it."""

    def __init__(
        self,
        optimizer: Optimizer,
        T_max: int,
        eta_min: float = 0.0,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        super().__init__(
            optimizer, CosineAnnealing(T_max, eta_min), last_step, verbose, last_epoch=last_epoch
        )


@dataclass(frozen=True)
class WarmRestarts:
    """Half cosines to eta_min, one after the other: the i-th (from 0) has T_0 * T_mult^i steps.

    It starts at base_lr * decay_rate^i. After `restart_limit` of them, if that is not 0, the rate
    stays at eta_min.
    """

    T_0: int
    T_mult: int
    eta_min: float
    decay_rate: float
    restart_limit: int

    def __post_init__(self) -> None:
        for name in ("T_0", "T_mult"):
            value = getattr(self, name)
            rule = f"CosineAnnealingWarmRestarts: {name} must be an integer >= 1"
            check(isinstance(value, int) and value >= 1, rule, value)
        rule = "CosineAnnealingWarmRestarts: restart_limit must be >= 0"
        check(self.restart_limit >= 0, rule, self.restart_limit)

    def rate(self, base_lr: float, step: float) -> float:
        cycle, length = 0, self.T_0
        if self.T_mult == 1:
            whole, step = divmod(step, length)
            cycle = int(whole)
        else:
            while step >= length:
                step -= length
                length *= self.T_mult
                cycle += 1
        if self.restart_limit and cycle >= self.restart_limit:
            return self.eta_min
        start = base_lr * self.decay_rate**cycle
        return float(self.eta_min + (start - self.eta_min) * half_cosine(step / length))


class CosineAnnealingWarmRestarts(LRScheduler):
    """Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts" (2017).

    Each cycle is `T_mult` times as long as the one before and starts `decay_rate` times as high;
    `restart_limit` is the number of cycles, 0 for no limit. `step(epoch)` may be given a fraction,
    such as epoch + batch / batches, as in torch.

    >>> import onefold as flow
    >>> optimizer = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
    >>> scheduler = flow.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2, T_mult=2)
    >>> [round(scheduler.rates(step)[0], 3) for step in range(7)]
    [1.0, 0.5, 1.0, 0.854, 0.5, 0.146, 1.0]
    """

    takes_epochs = True

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        decay_rate: float = 1.0,
        restart_limit: int = 0,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        schedule = WarmRestarts(T_0, T_mult, eta_min, decay_rate, restart_limit)
        super().__init__(optimizer, schedule, last_step, verbose, last_epoch=last_epoch)
