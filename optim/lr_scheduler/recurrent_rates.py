"""Rates by recurrence, as in torch: each from the one before, which others may have changed."""

from __future__ import annotations

from .cosine import CosineAnnealing, WarmRestarts
from .cycles import Cyclic, OneCycle
from .decay import Constant, Exponential, Linear, MultiStep, Polynomial, StepDecay
from .lambda_lr import Product, Scaled
from .scheduler import Schedule

# In torch these set the rate, whatever it was; the cosine moves it, and the others multiply it.
_SETTING = (Scaled, WarmRestarts, Cyclic, OneCycle)
_MULTIPLYING = (Constant, Exponential, Linear, MultiStep, Polynomial, StepDecay)


def is_torchs(schedule: Schedule) -> bool:
    """Whether torch has the schedule, as a change of the rate one step before."""
    special = isinstance(schedule, (Product, CosineAnnealing, *_SETTING))
    return special or (isinstance(schedule, _MULTIPLYING) and _scales(schedule))


def multiplies(schedule: Schedule) -> bool:
    """Whether a schedule of torch only multiplies the rate."""
    return isinstance(schedule, (Product, *_MULTIPLYING))


def _scales(schedule: Schedule) -> bool:
    """Whether the rate is a multiple of the base rate that does not start as 0."""
    if isinstance(schedule, Polynomial) and (schedule.end_learning_rate != 0 or schedule.cycle):
        return False
    return schedule.rate(1.0, 0) > 0


def rate_after(schedule: Schedule, rate: float, base_lr: float, step: int) -> float:
    """The rate that a schedule makes of `rate` at a step; one that is not torch's sets it."""
    if isinstance(schedule, Cyclic) and step == 0:
        return base_lr  # as torch's constructor leaves it, whatever the cycle begins with
    if isinstance(schedule, CosineAnnealing):
        return schedule.after(rate, base_lr, step)
    if isinstance(schedule, Product):
        return rate * schedule.factor(step) if step else rate
    if isinstance(schedule, _SETTING) or not is_torchs(schedule):
        return schedule.rate(base_lr, step)
    if step == 0:
        return rate * schedule.rate(1.0, 0)
    before = schedule.rate(1.0, step - 1)
    return rate * schedule.rate(1.0, step) / before if before else rate


def restarted_rate(schedule: Schedule, rate: float, base_lr: float) -> float:
    """The rate of a schedule that starts over, as torch computes it without the steps before."""
    if isinstance(schedule, Product):
        return rate * schedule.factor(0)
    return schedule.rate(base_lr, 0)
