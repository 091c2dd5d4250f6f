"""Cyclic schedules of learning rates, and of momentum against them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ...engine.argument_errors import checks_own_arguments
from ...engine.commit import Change
from ...errors import OnefoldTypeError, OnefoldValueError
from ..optimizer import Group, Optimizer, set_rate
from .scheduler import LRScheduler, Schedule, check

Scale = Callable[[float], float]
STRATEGIES = ("cos", "linear")


class CyclingLR(LRScheduler):
    """The base of schedulers that may also set each group's momentum, or its first beta.

    `momenta` are schedules of the momentum, one for each group, or none.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedules: Sequence[Schedule],
        momenta: Sequence[Schedule],
        last_step: int,
    ) -> None:
        self.momenta = tuple(momenta)
        super().__init__(optimizer, schedules, last_step)

    @checks_own_arguments
    def changes(self, epoch: float | None = None) -> list[Change]:
        changes = super().changes(epoch)
        step = self.step_at(epoch)
        for group, schedule in zip(self._param_groups(), self.momenta, strict=False):
            momentum = schedule.rate(0.0, step)
            changes.append(partial(group.update, _momentum(group, momentum)))
        return changes


def each(name: str, optimizer: Optimizer, value: float | Sequence[float]) -> list[float]:
    """A number for each group: one for all of them, or as many as there are groups."""
    if not isinstance(optimizer, Optimizer):
        raise OnefoldTypeError(f"{type(optimizer).__name__} is not an Optimizer")
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * groups  # type: ignore[list-item]
    if len(value) != groups:
        raise OnefoldValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} "
            f"values, param_groups has {groups}."
        )
    return list(value)


def _momentum_names(optimizer: Optimizer) -> None:
    if not {"momentum", "betas"} & set(optimizer.defaults):
        raise OnefoldValueError(
            "optimizer must support momentum or beta1 with `cycle_momentum` option enabled, but "
            f"{type(optimizer).__name__} has neither; pass cycle_momentum=False"
        )


def _momentum(group: Group, momentum: float) -> Group:
    """The options by which a group takes a momentum."""
    if "betas" in group:
        return {"betas": (momentum, *group["betas"][1:])}
    return {"momentum": momentum}


@dataclass(frozen=True)
class Cyclic:
    """A triangle wave between two numbers, with a height that `scale` gives."""

    base: float
    top: float
    up: float  # steps
    down: float
    scale: Scale
    by_cycle: bool  # whether `scale` is of the cycle, which counts from 1, else of the step
    sign: float = 1.0  # -1: from the top downwards

    def rate(self, base_lr: float, step: int) -> float:
        total = self.up + self.down
        ratio = self.up / total
        cycle = math.floor(1 + step / total)
        x = 1.0 + step / total - cycle
        part = x / ratio if x <= ratio else (x - 1) / (ratio - 1)
        height = (self.top - self.base) * part
        start = self.base if self.sign > 0 else self.top
        return start + self.sign * height * self.scale(cycle if self.by_cycle else step)


class CyclicLR(CyclingLR):
    """Smith, "Cyclical learning rates for training neural networks" (2017).

    The rate rises from `base_lr` to `max_lr` in `step_size_up` steps and falls again in
    `step_size_down`; the momentum goes the other way. In mode "triangular2" each cycle is half as
    high, in "exp_range" the height is gamma ** step; `scale_fn` gives another one, of the cycle or,
    with `scale_mode` "iterations", of the step. The arguments are torch's. Raises OnefoldValueError
    for an unknown mode, and for momentum that the optimizer lacks.

    >>> import onefold as flow
    >>> optimizer = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
    >>> scheduler = flow.optim.lr_scheduler.CyclicLR(optimizer, 1.0, 3.0, step_size_up=2)
    >>> [scheduler.rates(step)[0] for step in range(5)]
    [1.0, 2.0, 3.0, 2.0, 1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Scale | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        low, top = each("base_lr", optimizer, base_lr), each("max_lr", optimizer, max_lr)
        scales: dict[str, Scale] = {
            "triangular": lambda cycle: 1.0,
            "triangular2": lambda cycle: 1 / (2.0 ** (cycle - 1)),
            "exp_range": lambda step: gamma**step,
        }
        by_cycle = scale_mode == "cycle"
        if scale_fn is None:
            check(mode in scales, f"CyclicLR: mode must be one of {tuple(scales)}", repr(mode))
            scale_fn, by_cycle = scales[mode], mode != "exp_range"
        down = step_size_up if step_size_down is None else step_size_down
        rule = "CyclicLR: step_size_up and step_size_down must be > 0"
        check(step_size_up > 0 and down > 0, rule, (step_size_up, down))
        shape = float(step_size_up), float(down), scale_fn, by_cycle
        momenta = []
        if cycle_momentum:
            _momentum_names(optimizer)
            least = each("base_momentum", optimizer, base_momentum)
            most = each("max_momentum", optimizer, max_momentum)
            momenta = [Cyclic(a, b, *shape, -1.0) for a, b in zip(least, most, strict=True)]
        schedules = [Cyclic(a, b, *shape) for a, b in zip(low, top, strict=True)]
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, low, strict=True):
                set_rate(group, rate)
                group.setdefault("initial_lr", rate)  # perhaps of a scheduler made before
        super().__init__(optimizer, schedules, momenta, last_epoch)
        self.base_lrs = low

    def _next_rates(self, step: int) -> list[float]:
        if self._is_initial and not step:  # as in torch: what an earlier scheduler began with
            return [*self.base_lrs]
        return super()._next_rates(step)


@dataclass(frozen=True)
class OneCycle:
    """Numbers that are reached at steps, and a curve from each to the next."""

    ends: tuple[float, ...]  # the steps; the first number is that of step 0
    values: tuple[float, ...]
    strategy: str

    def rate(self, base_lr: float, step: int) -> float:
        if step > self.ends[-1] + 1:
            raise OnefoldValueError(
                f"Tried to step {step} times. The specified number of total steps is "
                f"{int(self.ends[-1]) + 1}"
            )
        index = next((i for i, end in enumerate(self.ends) if step <= end), len(self.ends) - 1)
        first, last = self.ends[index - 1] if index else 0.0, self.ends[index]
        part = (step - first) / (last - first) if last != first else 1.0
        start, end = self.values[index], self.values[index + 1]
        if self.strategy == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)
        return (end - start) * part + start


class OneCycleLR(CyclingLR):
    """Smith and Topin, "Super-convergence" (2018): one rise and a long fall of the rate.

    The rate rises from max_lr / div_factor to `max_lr` in the part `pct_start` of the steps, and
    falls to the first rate / final_div_factor in the others, with `three_phase` to the first rate
    in as many steps as it rose, and then further. The momentum goes the other way. The steps are
    `total_steps`, or epochs * steps_per_epoch. The arguments are torch's. Raises OnefoldValueError
    for arguments out of range, for momentum that the optimizer lacks, and for too many steps.

    >>> import onefold as flow
    >>> optimizer = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
    >>> scheduler = flow.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    >>> [round(scheduler.rates(step)[0], 2) for step in range(5)]
    [0.04, 0.52, 1.0, 0.95, 0.81]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        top = each("max_lr", optimizer, max_lr)
        total = _total(total_steps, epochs, steps_per_epoch)
        rule = "OneCycleLR: pct_start must be a float in [0, 1]"
        check(type(pct_start) is float and 0 <= pct_start <= 1, rule, pct_start)
        rule = f"OneCycleLR: anneal_strategy must be one of {STRATEGIES}"
        check(anneal_strategy in STRATEGIES, rule, repr(anneal_strategy))
        ends: tuple[float, ...] = float(pct_start * total) - 1, total - 1
        if three_phase:
            ends = ends[0], float(2 * pct_start * total) - 2, total - 1
        schedules = []
        for group, rate in zip(optimizer.param_groups, top, strict=True):
            if last_epoch == -1:
                first = rate / div_factor
                made = {"initial_lr": first, "max_lr": rate, "min_lr": first / final_div_factor}
                group.update(made)
            first, rate = group["initial_lr"], group["max_lr"]
            back = (first,) if three_phase else ()
            values = (first, rate, *back, group["min_lr"])
            schedules.append(OneCycle(ends, values, anneal_strategy))
        momenta = []
        if cycle_momentum:
            _momentum_names(optimizer)
            least = each("base_momentum", optimizer, base_momentum)
            most = each("max_momentum", optimizer, max_momentum)
            for group, low, high in zip(optimizer.param_groups, least, most, strict=True):
                if last_epoch == -1:
                    group.update({"max_momentum": high, "base_momentum": low})
                low, high = group["base_momentum"], group["max_momentum"]
                values = (high, low, *(high,) * (len(ends) - 1))
                momenta.append(OneCycle(ends, values, anneal_strategy))
        super().__init__(optimizer, schedules, momenta, last_epoch)


def _total(total: int | None, epochs: int | None, per_epoch: int | None) -> int:
    if total is not None:
        rule = "OneCycleLR: total_steps must be a positive integer"
        check(type(total) is int and total > 0, rule, total)
        return total
    if epochs is None or per_epoch is None:
        raise OnefoldValueError(
            "You must define either total_steps OR (epochs AND steps_per_epoch)"
        )
    for name, value in (("epochs", epochs), ("steps_per_epoch", per_epoch)):
        rule = f"OneCycleLR: {name} must be a positive integer"
        check(type(value) is int and value > 0, rule, value)
    return epochs * per_epoch
