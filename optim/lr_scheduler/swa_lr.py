"""SWALR: anneals the learning rates of the groups to fixed ones."""

from __future__ import annotations

import math
from functools import partial

from ...engine.commit import finish
from ..optimizer import Optimizer
from .cycles import STRATEGIES, each
from .scheduler import Scheduler, base_rates, check


class SWALR(Scheduler):
    """The schedule of stochastic weight averaging, Izmailov et al. (2018).

    Anneals each group's rate, which other schedulers may have set, to `swa_lr` in `anneal_epochs`
    steps, along a cosine or a line. The arguments are torch's: the annealing begins with the first
    step of this scheduler, whatever `last_epoch` says. Raises OnefoldValueError for arguments out
    of range, and for a `last_epoch` where a group has no "initial_lr".

    >>> import onefold as flow
    >>> optimizer = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
    >>> scheduler = flow.optim.swa_utils.SWALR(optimizer, 0.5, 2, "linear")
    >>> for _ in range(3):
    ...     scheduler.step()
    >>> scheduler.get_last_lr()
    [0.5]
    """

    state_keys = ("last_step", "_last_lr", "_begun")

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        rates = each("swa_lr", optimizer, swa_lr)
        rule = f"SWALR: anneal_strategy must be one of {STRATEGIES}"
        check(anneal_strategy in STRATEGIES, rule, repr(anneal_strategy))
        rule = "SWALR: anneal_epochs must be an integer >= 0"
        check(type(anneal_epochs) is int and anneal_epochs >= 0, rule, anneal_epochs)
        super().__init__(optimizer, False)
        groups = optimizer.param_groups
        bases = base_rates(groups, last_epoch)
        for group, rate, base in zip(groups, rates, bases, strict=True):
            group["swa_lr"], group["initial_lr"] = rate, base
        self.anneal_epochs, self.anneal_strategy = anneal_epochs, anneal_strategy
        self.last_step = last_epoch
        self._begun = last_epoch + 1  # the step at which the annealing begins
        self.step()

    def step(self) -> None:
        """Advance by one step; call it after `optimizer.step()`."""
        groups = self._param_groups()
        last_step = self.last_step + 1
        step = last_step - self._begun
        step = max(1, step) if self.anneal_epochs == 0 else step
        before, now = self._part(step - 1), self._part(step)
        rates = []  # all of them before one is set: groups may share a tensor
        for group in groups:
            rate, target = float(group["lr"]), group["swa_lr"]
            first = target if before == 1 else (rate - before * target) / (1 - before)
            rates.append(target * now + first * (1 - now))
        found = dict(enumerate(rates))
        finish([partial(self._setting, found, last_step=last_step, _last_lr=rates)])

    def _part(self, step: int) -> float:
        """The progress of the annealing after some steps, from 0 to 1."""
        t = max(0, min(1, step / max(1, self.anneal_epochs)))
        return t if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2
