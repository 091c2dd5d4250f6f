"""WarmupLR: rates that rise, or are small, before a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import OnefoldTypeError
from ..optimizer import Optimizer
from .decay import Constant
from .scheduler import LRScheduler, Schedule, check
from .together import check_rates_only


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
            check_rates_only("WarmupLR", given)
            optimizer, after = given.optimizer, given.schedules
        else:
            raise OnefoldTypeError(
                "'scheduler_or_optimizer' must be a LRScheduler or an Optimizer, but got "
                f"{type(given).__name__}"
            )
        options = warmup_factor, warmup_iters, warmup_method, warmup_prefix
        made = [Warmup(schedule, *options) for schedule in after]
        super().__init__(optimizer, made, last_step, verbose)
