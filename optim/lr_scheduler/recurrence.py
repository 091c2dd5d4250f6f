"""Recurrence: schedules whose rate torch computes from the rate one step before."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .scheduler import Schedule


class Recurrent:
    """The base of schedules that go on from the present rate, which others may have changed."""

    @property
    def recurs(self) -> bool:
        """Whether torch has the schedule with these options, and computes it so."""
        return True

    @abstractmethod
    def after(self, rate: float, base_lr: float, step: int) -> float:
        """The rate at a step, from the rate before it; at step 0, from the optimizer's."""


class Multiplying(Recurrent):
    """The base of schedules whose rate is a multiple of the base rate."""

    @property
    def recurs(self) -> bool:
        return self.rate(1.0, 0) > 0

    @abstractmethod
    def rate(self, base_lr: float, step: int) -> float:
        """The rate without a change by others."""

    def after(self, rate: float, base_lr: float, step: int) -> float:
        if step == 0:
            return rate * self.rate(1.0, 0)
        before = self.rate(1.0, step - 1)
        return rate * self.rate(1.0, step) / before if before else rate


def recurrent(schedule: Schedule) -> Recurrent | None:
    """The schedule, if its rates follow from each other."""
    return schedule if isinstance(schedule, Recurrent) and schedule.recurs else None
