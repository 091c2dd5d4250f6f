"""SequentialLR: several schedules, one after the other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...errors import OnefoldValueError
from ..optimizer import Group, Optimizer
from .composite import CompositeScheduler
from .cosine import WarmRestarts
from .decay import increasing
from .lambda_lr import Product, Scaled
from .recurrence import Recurrent
from .recurrent_rates import rate_after, restarted_rate
from .scheduler import LRScheduler, Schedule, check
from .together import together


@dataclass(frozen=True)
class Sequential(Recurrent):
    """One schedule up to each milestone and one after the last.

    A schedule whose entry in `rescaling` is set starts at its own step 0, at the milestone. With
    `bases` the rates are torch's: a schedule may have a base rate of its own there, and one that
    multiplies the rate before it goes on from the rate at the end of the schedule before it.
    """

    schedules: tuple[Schedule, ...]
    milestones: tuple[int, ...]
    rescaling: tuple[bool, ...]
    bases: tuple[float | None, ...] = ()

    def rate(self, base_lr: float, step: int) -> float:
        index = bisect_right(self.milestones, step)
        schedule = self.schedules[index]
        start = self.milestones[index - 1] if index and self.rescaling[index - 1] else 0
        if self.bases:
            if start and isinstance(schedule, Product):
                return schedule.restarted(self.rate(base_lr, start - 1), step - start)
            base_lr = self._base(index, base_lr)
        return schedule.rate(base_lr, step - start)

    def _base(self, index: int, base_lr: float) -> float:
        own = self.bases[index]
        return base_lr if own is None else own

    @property
    def recurs(self) -> bool:
        return bool(self.bases)

    def after(self, rate: float, base_lr: float, step: int) -> float:
        index = bisect_right(self.milestones, step)
        schedule, base_lr = self.schedules[index], self._base(index, base_lr)
        start = self.milestones[index - 1] if index else 0
        if index and step == start:
            return restarted_rate(schedule, rate, base_lr)
        return rate_after(schedule, rate, base_lr, step - start)


class SequentialLR(CompositeScheduler):
    """The schedules of several schedulers, one after the other.

    The first scheduler holds until the first milestone, and so on; each counts the steps from its
    milestone, and the rates are torch's. `interval_rescaling` is OneFlow's (for all, or one for
    each milestone): with False a scheduler counts from the beginning, with True from its milestone.
    Only the new scheduler is to be stepped. Without the argument, subclasses of users may be among
    the schedulers. Raises OnefoldValueError for milestones that do not increase, or are not one
    less than the schedulers.

    >>> import onefold as flow
    >>> from onefold.optim.lr_scheduler import ConstantLR, ExponentialLR, SequentialLR
    >>> optimizer = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
    >>> parts = [ConstantLR(optimizer, 0.25, total_iters=2), ExponentialLR(optimizer, 0.5)]
    >>> SequentialLR(optimizer, parts, milestones=[2]).rates(3)
    [0.5]
    >>> SequentialLR(optimizer, parts, milestones=[2], interval_rescaling=False).rates(3)
    [0.125]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        interval_rescaling: bool | Sequence[bool] | None = None,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        asks = interval_rescaling is None
        per_group = together("SequentialLR", optimizer, schedulers, asks)
        count = len(milestones)
        if count != len(schedulers) - 1:
            raise OnefoldValueError(
                "SequentialLR expects the number of schedulers to be one more than the number of "
                f"milestones, but got {len(schedulers)} schedulers and {count} milestones"
            )
        rule = "SequentialLR: milestones must be increasing and >= 0"
        check(increasing(milestones) and all(m >= 0 for m in milestones), rule, list(milestones))
        given = (
            [interval_rescaling is not False] * count
            if interval_rescaling is None or isinstance(interval_rescaling, bool)
            else list(interval_rescaling)
        )
        rule = "SequentialLR: interval_rescaling must be a bool or one for each milestone"
        check(len(given) == count, f"{rule} ({count})", given)
        places = tuple(milestones), tuple(given)
        made = [Sequential(schedules, *places) for schedules in per_group]
        if asks and made:
            own = zip(*[scheduler.base_lrs for scheduler in schedulers], strict=True)
            triples = zip(made, optimizer.param_groups, own, strict=True)
            made = [replace(one, bases=_bases(one, group, rates)) for one, group, rates in triples]
        parts = schedulers if asks else ()
        self._milestones = places[0]
        super().__init__(optimizer, parts, made, last_step, verbose, last_epoch=last_epoch)

    def turns(self, step: int) -> Sequence[tuple[LRScheduler, bool]]:
        index = bisect_right(self._milestones, step)
        starts = index > 0 and step > 0 and self._milestones[index - 1] == step
        return [(self._parts[index], starts)]


def _bases(sequential: Sequential, group: Group, own: Sequence[float]) -> tuple[float | None, ...]:
    """The base rates of schedulers where they are not the group's, as OneCycleLR changes it.

    The schedule at step 0 multiplies the group's in torch, unless it computes rates from its own.
    """
    first = bisect_right(sequential.milestones, 0)
    return tuple(
        None
        if base == group["initial_lr"]
        or (index == first and not isinstance(schedule, (Scaled, WarmRestarts)))
        else base
        for index, (base, schedule) in enumerate(zip(own, sequential.schedules, strict=True))
    )
