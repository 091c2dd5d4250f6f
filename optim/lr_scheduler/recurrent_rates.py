"""Rates by recurrence, as in torch: each from the one before, which others may have changed."""

from __future__ import annotations

from .cosine import WarmRestarts
from .cycles import Cyclic, OneCycle
from .lambda_lr import Product, Scaled
from .recurrence import Multiplying, recurrent
from .scheduler import Schedule

# In torch these set the rate, whatever it was.
_SETTING = (Scaled, WarmRestarts, Cyclic, OneCycle)


def is_torchs(schedule: Schedule) -> bool:
    """Whether torch has the schedule, as a change of the rate one step before."""
    return isinstance(schedule, _SETTING) or recurrent(schedule) is not None


def multiplies(schedule: Schedule) -> bool:
    """Whether a schedule of torch only multiplies the rate."""
    return isinstance(schedule, (Product, Multiplying))


def rate_after(schedule: Schedule, rate: float, base_lr: float, step: int) -> float:
    """The rate that a schedule makes of `rate` at a step; one that is not torch's sets it."""
    if isinstance(schedule, Cyclic) and step == 0:
        return base_lr  # as torch's constructor leaves it, whatever the cycle begins with
    following = recurrent(schedule)
    if following is not None:
        return following.after(rate, base_lr, step)
    return schedule.rate(base_lr, step)


def restarted_rate(schedule: Schedule, rate: float, base_lr: float) -> float:
    """The rate of a schedule that starts over, as torch computes it without the steps before."""
    if isinstance(schedule, Product):
        return rate * schedule.factor(0)
    return schedule.rate(base_lr, 0)
