"""Schedules of learning rates: pure functions of the step, with an optional warm-up."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Protocol

from ..errors import OnefoldTypeError, OnefoldValueError
from ..optim.lr_scheduler.decay import Polynomial


@dataclass(frozen=True)
class Warmup:
    """The share of the base rate in the first steps; where it is linear it grows from `start`."""

    steps: int
    start: float
    linear: bool

    def __post_init__(self) -> None:
        _check_steps("a warm-up", self.steps)

    def share(self, step: int) -> float:
        """What the base rate is multiplied by at a step of the warm-up."""
        if not self.linear:
            return self.start
        return self.start + (1 - self.start) * step / self.steps


def constant(steps: int, multiplier: float) -> Warmup:
    """The same share of the base rate in the first `steps` steps."""
    return Warmup(steps, multiplier, linear=False)


def linear(steps: int, start_multiplier: float) -> Warmup:
    """A share of the base rate that grows to 1 in the first `steps` steps."""
    return Warmup(steps, start_multiplier, linear=True)


class Schedule:
    """A learning rate by step, and a warm-up; steps count from 0 and include the warm-up's.

    >>> Schedule(1.0, lambda step: 0.5**step, linear(2, 0.0)).rate(0, 1)
    0.5
    """

    def __init__(
        self, base_lr: float, decayed: Callable[[int], float], warmup: Warmup | None = None
    ) -> None:
        if isinstance(base_lr, bool) or not isinstance(base_lr, (int, float)):
            raise OnefoldTypeError(f"a learning rate must be a number, but got {base_lr!r}")
        if warmup is not None and not isinstance(warmup, Warmup):
            raise OnefoldTypeError(
                "warmup must be flow.optimizer.warmup.linear(...) or .constant(...), but got "
                f"{warmup!r}"
            )
        self.base_lr = float(base_lr)  # which the warm-up's shares are of
        self._decayed = decayed
        self._warmup = warmup

    def rate(self, base_lr: float, step: int) -> float:
        """The rate of a step, whatever the optimizer's own base rate is."""
        if self._warmup is not None and step < self._warmup.steps:
            return self.base_lr * self._warmup.share(step)
        return self._decayed(step)


def constant_rate(lr: float) -> Schedule:
    """The same rate at every step."""
    return Schedule(lr, lambda step: float(lr))


def PiecewiseConstantScheduler(  # noqa: N802 (the name that programs use)
    boundaries: Sequence[int], values: Sequence[float], warmup: Warmup | None = None
) -> Schedule:
    """`values[i]` up to step `boundaries[i]`, that included, and then the last value."""
    _check_pieces("PiecewiseConstantScheduler", boundaries, values, "values", len(boundaries) + 1)
    return Schedule(values[0], lambda step: float(values[bisect_left(boundaries, step)]), warmup)


def PiecewiseScalingScheduler(  # noqa: N802 (the name that programs use)
    base_lr: float,
    boundaries: Sequence[int],
    scale: float | Sequence[float],
    warmup: Warmup | None = None,
) -> Schedule:
    """`base_lr` up to the first boundary, and `base_lr * scale[i]` after `boundaries[i]`."""
    given = list(scale) if isinstance(scale, Sequence) else [scale]
    _check_pieces("PiecewiseScalingScheduler", boundaries, given, "scales", len(boundaries))
    scales = [1.0, *given]
    return Schedule(base_lr, lambda step: base_lr * scales[bisect_left(boundaries, step)], warmup)


def CosineScheduler(  # noqa: N802 (the name that programs use)
    base_lr: float, steps: int, alpha: float = 0.0, warmup: Warmup | None = None
) -> Schedule:
    """Half a cosine from `base_lr` to `alpha * base_lr`. Source: Loshchilov and Hutter (2017)."""
    _check_steps("CosineScheduler", steps)

    def decayed(step: int) -> float:
        share = (1 + math.cos(math.pi * min(step, steps) / steps)) / 2
        return base_lr * ((1 - alpha) * share + alpha)

    return Schedule(base_lr, decayed, warmup)


def PolynomialScheduler(  # noqa: N802 (the name that programs use)
    base_lr: float,
    steps: int,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
    warmup: Warmup | None = None,
) -> Schedule:
    """From `base_lr` to `end_learning_rate`; with `cycle` the steps become as many as are taken.

    As in OneFlow, with `cycle` step 0 has the rate of step 1.
    """
    _check_steps("PolynomialScheduler", steps)
    if power < 0:
        raise OnefoldValueError(f"PolynomialScheduler: power must be >= 0, but got {power!r}")
    schedule = Polynomial(steps, end_learning_rate, power, cycle)
    return Schedule(base_lr, partial(schedule.rate, base_lr), warmup)


def LinearCosineScheduler(  # noqa: N802 (the name that programs use)
    base_lr: float,
    steps: int,
    num_periods: float = 0.5,
    alpha: float = 0.0,
    beta: float = 0.001,
    warmup: Warmup | None = None,
) -> Schedule:
    """A cosine under a falling line. Source: Bello et al. (2017)."""
    _check_steps("LinearCosineScheduler", steps)

    def decayed(step: int) -> float:
        done = min(step, steps) / steps
        cosine = (1 + math.cos(2 * math.pi * num_periods * done)) / 2
        return base_lr * ((alpha + 1 - done) * cosine + beta)

    return Schedule(base_lr, decayed, warmup)


class ByPeriods(Protocol):
    """A decay by the periods of `steps` that are done: with `staircase` by whole ones."""

    def __call__(
        self,
        base_lr: float,
        steps: int,
        decay_rate: float,
        staircase: bool = False,
        warmup: Warmup | None = None,
    ) -> Schedule: ...


def _by_periods(name: str, doc: str, share: Callable[[float, float], float]) -> ByPeriods:
    """The schedule of `base_lr * share(decay_rate, periods)`."""

    def made(
        base_lr: float,
        steps: int,
        decay_rate: float,
        staircase: bool = False,
        warmup: Warmup | None = None,
    ) -> Schedule:
        _check_steps(name, steps)

        def decayed(step: int) -> float:
            return base_lr * share(decay_rate, step // steps if staircase else step / steps)

        return Schedule(base_lr, decayed, warmup)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = doc
    return made


ExponentialScheduler = _by_periods(
    "ExponentialScheduler",
    "`base_lr * decay_rate ** (step / steps)`; with `staircase` in whole powers.",
    pow,
)
InverseTimeScheduler = _by_periods(
    "InverseTimeScheduler",
    "`base_lr / (1 + decay_rate * step / steps)`.",
    lambda rate, periods: 1 / (1 + rate * periods),
)
NaturalExpScheduler = _by_periods(
    "NaturalExpScheduler",
    "`base_lr * exp(-decay_rate * step / steps)`.",
    lambda rate, periods: math.exp(-rate * periods),
)


def CustomScheduler(rate: Callable[[int], float]) -> Schedule:  # noqa: N802 (see above)
    """The rate that a function gives for a step."""
    if not callable(rate):
        raise OnefoldTypeError(
            "CustomScheduler needs a function from the number of a step to its rate; the name of a "
            f"blob that holds one, {rate!r}, means nothing here"
        )
    return Schedule(float(rate(0)), lambda step: float(rate(step)))


def _check_steps(who: str, steps: object) -> None:
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise OnefoldValueError(f"{who}: steps must be an integer of at least 1, but got {steps!r}")


def _check_pieces(
    who: str, boundaries: Sequence[int], given: Sequence[float], what: str, wanted: int
) -> None:
    if len(given) != wanted:
        raise OnefoldValueError(
            f"{who} with {len(boundaries)} boundaries needs {wanted} {what}, but got {len(given)}"
        )
    if any(a >= b for a, b in pairwise(boundaries)):
        raise OnefoldValueError(f"{who}: boundaries must rise, but got {list(boundaries)}")
