"""Together: the schedules of several schedulers of one optimizer, for each of its groups."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import OnefoldTypeError, OnefoldValueError
from ..optimizer import Optimizer
from .scheduler import LRScheduler, Schedule


def together(
    name: str,
    optimizer: Optimizer | None,
    schedulers: Sequence[LRScheduler],
    asks: bool = True,
) -> list[tuple[Schedule, ...]]:
    """For each group, what all the schedulers have for it.

    Nothing where one has no schedules, but `get_lr()`, which `asks` allows.
    """
    if not schedulers:
        raise OnefoldValueError(f"{name} expects at least one scheduler, but got none")
    for index, scheduler in enumerate(schedulers):
        if not isinstance(scheduler, LRScheduler):
            raise OnefoldTypeError(
                f"{name} expects schedulers with a closed form, but got "
                f"{type(scheduler).__name__} at index {index}"
            )
        check_rates_only(name, scheduler, asks)
        if scheduler.optimizer is not optimizer:
            raise OnefoldValueError(
                f"{name} expects all schedulers to belong to the same optimizer, but the one at "
                f"index {index}, {type(scheduler).__name__}, belongs to another"
            )
    if not all(scheduler.schedules for scheduler in schedulers):
        return []
    return list(zip(*[scheduler.schedules for scheduler in schedulers], strict=True))


def check_rates_only(name: str, scheduler: LRScheduler, asks: bool = False) -> None:
    """Raise an error unless a scheduler has schedules, of rates alone, for `name` to use.

    With `asks` it may have a method `get_lr()` instead.
    """
    steps = type(scheduler).step is not LRScheduler.step  # does what nobody knows
    if not scheduler.schedules and (steps or not asks):
        kind = type(scheduler).__name__
        raise OnefoldTypeError(
            f"{name} needs the rates of each step by themselves, but {kind} gives those of the "
            f"next step only, by {'step()' if steps else 'get_lr()'}; put the schedule into an "
            f"object with a method rate(base_lr, step), and give {name} "
            "LRScheduler(optimizer, that object), or "
            "LambdaLR(optimizer, function)"
        )
    if scheduler.momenta:
        raise OnefoldValueError(
            f"{name} sets learning rates only, but the given {type(scheduler).__name__} cycles "
            "momentum, too; make it with cycle_momentum=False, or step it by itself"
        )
