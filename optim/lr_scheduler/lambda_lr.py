"""Schedules given as Python functions of the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...engine.argument_errors import checks_own_arguments
from ...engine.commit import Change
from ...errors import OnefoldNotImplementedError, OnefoldTypeError
from ..optimizer import Optimizer
from .recurrence import Recurrent
from .scheduler import LRScheduler, Schedule

Factor = Callable[[int], float]


@dataclass(frozen=True)
class Scaled:
    """base_lr * factor(step)."""

    factor: Factor

    def rate(self, base_lr: float, step: int) -> float:
        return base_lr * self.factor(step)


class Product(Recurrent):
    """base_lr * factor(1) * ... * factor(step).

    It remembers the last product, so that the next step calls the function once.
    """

    def __init__(self, factor: Factor) -> None:
        self.factor = factor
        self._step = 0
        self._product = 1.0

    def rate(self, base_lr: float, step: int) -> float:
        if step < self._step:
            self._step, self._product = 0, 1.0
        while self._step < step:
            self._product *= self.factor(self._step + 1)
            self._step += 1
        return base_lr * self._product

    def after(self, rate: float, base_lr: float, step: int) -> float:
        return rate * self.factor(step) if step else rate

    def restarted(self, rate: float, step: int) -> float:
        """A rate * factor(0) * ... * factor(step)."""
        return self.rate(rate * self.factor(0), step)


class _OfFactors(LRScheduler):
    """A schedule made of one function of the step, or one made of each group's function."""

    _schedule: type[Scaled | Product]

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Factor | Sequence[Factor],
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        super().__init__(
            optimizer, _each(self._schedule, lr_lambda), last_step, verbose, last_epoch=last_epoch
        )


class LambdaLR(_OfFactors):
    """The base rate times a function of the step, or of one function for each group.

    The functions must be pure; `state_dict` does not hold them.

    >>> import onefold as flow
    >>> optimizer = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
    >>> flow.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step).rates(2)
    [0.25]
    """

    _schedule = Scaled


class MultiplicativeLR(_OfFactors):
    """Multiplies the rate at every step from 1 on by a function of the step, or one per group.

    The functions must be pure; `state_dict` does not hold them. `step` takes no epoch.
    """

    _schedule = Product

    @checks_own_arguments
    def changes(self, epoch: float | None = None) -> list[Change]:
        if epoch is not None:
            raise OnefoldNotImplementedError(
                f"MultiplicativeLR.step(epoch): the rate at step {epoch} is a product over all "
                "steps before; call step() once for each, or use LambdaLR with the whole factor"
            )
        return super().changes()


def _each(
    make: Callable[[Factor], Schedule], factors: Factor | Sequence[Factor]
) -> Schedule | list[Schedule]:
    given = list(factors) if isinstance(factors, Sequence) else [factors]
    for factor in given:
        if not callable(factor):
            raise OnefoldTypeError(f"lr_lambda must be a function of the step, but got {factor!r}")
    made = [make(factor) for factor in given]
    return made if isinstance(factors, Sequence) else made[0]
