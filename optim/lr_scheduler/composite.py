"""Composite schedules: one after the other, chained, or with a warm-up."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import OnefoldTypeError, OnefoldValueError
from ..optimizer import Optimizer
from .decay import Constant, increasing
from .scheduler import LRScheduler, Schedule, check


@dataclass(frozen=True)
class Sequential:
    """One schedule up to each milestone and one after the last.

    A schedule whose entry in `rescaling` is set starts at its own step 0, at the milestone.
    """

    schedules: tuple[Schedule, ...]
    milestones: tuple[int, ...]
    rescaling: tuple[bool, ...]

    def rate(self, base_lr: float, step: int) -> float:
        index = bisect_right(self.milestones, step)
        if index and self.rescaling[index - 1]:
            step -= self.milestones[index - 1]
        return self.schedules[index].rate(base_lr, step)


class SequentialLR(LRScheduler):
    """The schedules of several schedulers, one after the other.

    The first scheduler holds until the first milestone, and so on. All count the steps from the
    beginning; with `interval_rescaling` (for all, or one for each milestone) a scheduler counts
    from its milestone. Only the new scheduler is to be stepped.

    >>> import onefold as flow
    >>> from onefold.optim.lr_scheduler import ConstantLR, ExponentialLR, SequentialLR
    >>> optimizer = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
    >>> parts = [ConstantLR(optimizer, 0.25, total_iters=2), ExponentialLR(optimizer, 0.5)]
    >>> SequentialLR(optimizer, parts, milestones=[2], interval_rescaling=True).rates(3)
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        interval_rescaling: bool | Sequence[bool] = False,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        per_group = _together("SequentialLR", optimizer, schedulers)
        count = len(milestones)
        if count != len(schedulers) - 1:
            raise OnefoldValueError(
                "SequentialLR expects the number of schedulers to be one more than the number of "
                f"milestones, but got {len(schedulers)} schedulers and {count} milestones"
            )
        rule = "SequentialLR: milestones must be increasing and >= 0"
        check(increasing(milestones) and all(m >= 0 for m in milestones), rule, list(milestones))
        given = (
            [interval_rescaling] * count
            if isinstance(interval_rescaling, bool)
            else list(interval_rescaling)
        )
        rule = "SequentialLR: interval_rescaling must be a bool or one for each milestone"
        check(len(given) == count, f"{rule} ({count})", given)
        places = tuple(milestones), tuple(given)
        made = [Sequential(schedules, *places) for schedules in per_group]
        super().__init__(optimizer, made, last_step, verbose, last_epoch=last_epoch)


@dataclass(frozen=True)
class Chain:
    """Each schedule with the rate of the one before as its base rate."""

    schedules: tuple[Schedule, ...]

    def rate(self, base_lr: float, step: int) -> float:
        for schedule in self.schedules:
            base_lr = schedule.rate(base_lr, step)
        return base_lr


class ChainedScheduler(LRScheduler):
    """The schedules of several schedulers at once: each works on the rate of the one before.

    Only the new scheduler is to be stepped.
    """

    def __init__(self, schedulers: Sequence[LRScheduler]) -> None:
        optimizer = schedulers[0].optimizer if schedulers else None
        per_group = _together("ChainedScheduler", optimizer, schedulers)
        super().__init__(schedulers[0].optimizer, [Chain(given) for given in per_group])


@dataclass(frozen=True)
class Warmup:
    """base_lr * factor ("constant"), or from it in a line ("linear"), for `iters` steps.

    Then comes the schedule `after`. The line leads to where that goes on, so that the rate does
    not jump: with `prefix` to base_lr, as `after` then starts at its own step 0.
    """

    after: Schedule
    factor: float
    iters: int
    method: str
    prefix: bool

    def __post_init__(self) -> None:
        rule = "WarmupLR: 'warmup_method' must be 'linear' or 'constant'"
        check(self.method in {"linear", "constant"}, rule, repr(self.method))
        check(0 <= self.factor <= 1, "WarmupLR: warmup_factor must be in [0, 1]", self.factor)
        check(self.iters >= 0, "WarmupLR: warmup_iters must be >= 0", self.iters)

    def rate(self, base_lr: float, step: int) -> float:
        if step >= self.iters:
            return self.after.rate(base_lr, step - self.iters if self.prefix else step)
        start = base_lr * self.factor
        if self.method == "constant":
            return start
        end = base_lr if self.prefix else self.after.rate(base_lr, self.iters)
        return start + (end - start) * (step / self.iters)


class WarmupLR(LRScheduler):
    """A warmup, then the schedule of a scheduler, or the base rate of an optimizer.

    During `warmup_iters` steps the rate is the fraction `warmup_factor` of the base rate, or rises
    from it in a line. The schedule counts the steps from the beginning, or, with `warmup_prefix`,
    from the end of the warmup. Only the new scheduler is to be stepped.

    >>> import onefold as flow
    >>> from onefold.optim.lr_scheduler import CosineDecayLR, WarmupLR
    >>> optimizer = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
    >>> cosine = CosineDecayLR(optimizer, decay_steps=4)
    >>> warmup = WarmupLR(cosine, 0.5, warmup_iters=2, warmup_prefix=True)
    >>> [round(warmup.rates(step)[0], 3) for step in range(7)]
    [0.5, 0.75, 1.0, 0.854, 0.5, 0.146, 0.0]
    """

    def __init__(
        self,
        scheduler_or_optimizer: LRScheduler | Optimizer,
        warmup_factor: float = 1.0 / 3,
        warmup_iters: int = 5,
        warmup_method: str = "linear",
        warmup_prefix: bool = False,
        last_step: int = -1,
        verbose: bool = False,
    ) -> None:
        given = scheduler_or_optimizer
        if isinstance(given, Optimizer):
            optimizer = given
            after: Sequence[Schedule] = [Constant()] * len(given.param_groups)
        elif isinstance(given, LRScheduler):
            _without_momentum("WarmupLR", given)
            optimizer, after = given.optimizer, given.schedules
        else:
            raise OnefoldTypeError(
                "'scheduler_or_optimizer' must be a LRScheduler or an Optimizer, but got "
                f"{type(given).__name__}"
            )
        options = warmup_factor, warmup_iters, warmup_method, warmup_prefix
        made = [Warmup(schedule, *options) for schedule in after]
        super().__init__(optimizer, made, last_step, verbose)


def _together(
    name: str, optimizer: Optimizer | None, schedulers: Sequence[LRScheduler]
) -> list[tuple[Schedule, ...]]:
    """For each group, what all the schedulers have for it."""
    if not schedulers:
        raise OnefoldValueError(f"{name} expects at least one scheduler, but got none")
    for index, scheduler in enumerate(schedulers):
        if not isinstance(scheduler, LRScheduler):
            raise OnefoldTypeError(
                f"{name} expects schedulers with a closed form, but got "
                f"{type(scheduler).__name__} at index {index}"
            )
        _without_momentum(name, scheduler)
        if scheduler.optimizer is not optimizer:
            raise OnefoldValueError(
                f"{name} expects all schedulers to belong to the same optimizer, but the one at "
                f"index {index}, {type(scheduler).__name__}, belongs to another"
            )
    return list(zip(*[scheduler.schedules for scheduler in schedulers], strict=True))


def _without_momentum(name: str, scheduler: LRScheduler) -> None:
    """Only rates have one schedule from several."""
    if scheduler.momenta:
        raise OnefoldValueError(
            f"{name} sets learning rates only, but the given {type(scheduler).__name__} cycles "
            "momentum, too; make it with cycle_momentum=False, or step it by itself"
        )
