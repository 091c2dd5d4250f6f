"""ReduceLROnPlateau: reduces the rate when a metric stops improving."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import SupportsFloat

from ...engine.commit import finish
from ..optimizer import Optimizer
from .scheduler import Scheduler, check, warn_of_epoch


class ReduceLROnPlateau(Scheduler):
    """Multiplies the rates by `factor` after more than `patience` steps without improvement.

    A metric improves on the best one if it is lower (mode "min") or higher ("max") by more than
    `threshold`, a fraction of the best ("rel") or a difference ("abs"). For `cooldown` steps after
    a reduction nothing counts. No rate falls below `min_lr`, one or one for each group; changes
    of at most `eps` are not made. Every process must be given the same metric.

    >>> import onefold as flow
    >>> optimizer = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
    >>> scheduler = flow.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     scheduler.step(loss)
    >>> scheduler.get_last_lr()
    [0.5]
    """

    state_keys = ("last_step", "best", "num_bad_steps", "cooldown_counter", "_last_lr")

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
        verbose: bool = False,
    ) -> None:
        super().__init__(optimizer, verbose)
        name = "ReduceLROnPlateau"
        for option, given, allowed in (
            ("mode", mode, ("min", "max")),
            ("threshold_mode", threshold_mode, ("rel", "abs")),
        ):
            check(given in allowed, f"{name}: {option} must be one of {allowed}", repr(given))
        check(0 <= factor < 1, f"{name}: factor must be >= 0 and < 1.0", factor)
        check(patience >= 0, f"{name}: patience must be >= 0", patience)
        check(cooldown >= 0, f"{name}: cooldown must be >= 0", cooldown)
        groups = self._groups
        self.min_lrs = list(min_lr) if isinstance(min_lr, Sequence) else [min_lr] * groups
        rule = f"{name}: expected {groups} min_lr, one for each group"
        check(len(self.min_lrs) == groups, rule, len(self.min_lrs))
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.factor, self.patience, self.cooldown, self.eps = factor, patience, cooldown, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_steps = 0
        self.cooldown_counter = 0
        self._last_lr = [float(group["lr"]) for group in optimizer.param_groups]

    @property
    def num_bad_epochs(self) -> int:
        """Torch's name of `num_bad_steps`."""
        return self.num_bad_steps

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:
        """Record a metric (a number or a tensor of one element), and reduce the rates if due.

        An `epoch` is the number of the step, which torch has deprecated. Raises
        OnefoldRuntimeError when groups were added to the optimizer.
        """
        if epoch is not None:
            warn_of_epoch()
        groups = self._param_groups()
        current, best, bad = float(metrics), self.best, self.num_bad_steps + 1
        if self.is_better(current, best):
            best, bad = current, 0
        counter = self.cooldown_counter
        if self.in_cooldown:
            counter, bad = counter - 1, 0
        rates = [float(group["lr"]) for group in groups]
        reduced: dict[int, float] = {}
        if bad > self.patience:
            reduced = self._reduced(rates)
            counter, bad = self.cooldown, 0
        write = partial(
            self._setting,
            reduced,
            last_step=self.last_step + 1 if epoch is None else epoch,
            best=best,
            num_bad_steps=bad,
            cooldown_counter=counter,
            _last_lr=[reduced.get(index, rate) for index, rate in enumerate(rates)],
        )
        finish([write])

    @property
    def in_cooldown(self) -> bool:
        return self.cooldown_counter > 0

    def is_better(self, value: float, best: float) -> bool:
        """Whether a metric improves on the best one so far."""
        sign = -1.0 if self.mode == "min" else 1.0
        if self.threshold_mode == "rel":
            bound = best * (1.0 + sign * self.threshold)
        else:
            bound = best + sign * self.threshold
        return value < bound if self.mode == "min" else value > bound

    def _reduced(self, rates: Sequence[float]) -> dict[int, float]:
        """The reduced rates, by the indices of their groups."""
        lower = {
            index: max(rate * self.factor, least)
            for index, (rate, least) in enumerate(zip(rates, self.min_lrs, strict=True))
        }
        return {index: rate for index, rate in lower.items() if rates[index] - rate > self.eps}
