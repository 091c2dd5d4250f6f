"""LRScheduler: sets the learning rates that a schedule gives for the number of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ...engine.tensor import Tensor
from ...errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from ..gradient_layouts import not_in_build
from ..optimizer import Group, Optimizer, set_rate


@runtime_checkable
class Schedule(Protocol):
    """A learning rate as a pure function of the base rate and the number of steps taken."""

    def rate(self, base_lr: float, step: int) -> float: ...


def check(allowed: bool, rule: str, found: object) -> None:
    """Raise OnefoldValueError with the rule and what was found, unless that is allowed."""
    if not allowed:
        raise OnefoldValueError(f"{rule}, but got {found}")


class LRScheduler:
    """Sets the learning rate of every parameter group; `step` goes on by one step.

    `schedule` is any object with a pure method `rate(base_lr, step)`, or a sequence of one for
    each group. Base rates are the groups' "initial_lr", which the first scheduler of an optimizer
    sets to their "lr". Step 0 is set at once; the constructor takes the number of the last step
    done, -1 for none. Raises OnefoldTypeError for what is no optimizer or schedule, and
    OnefoldValueError for a bad `last_step` or, when resuming, a group without "initial_lr".

    >>> import onefold as flow
    >>> class Halving:
    ...     def rate(self, base_lr, step):
    ...         return base_lr / 2**step
    >>> optimizer = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
    >>> scheduler = flow.optim.lr_scheduler.LRScheduler(optimizer, Halving())
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr(), scheduler.rates(3)
    ([0.5], [0.125])
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: Schedule | Sequence[Schedule],
        last_step: int = -1,
        verbose: bool = False,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise OnefoldTypeError(f"{type(optimizer).__name__} is not an Optimizer object")
        groups = optimizer.param_groups
        self.optimizer = optimizer
        self.schedules = _per_group(schedule, len(groups))
        self.base_lrs = _base_lrs(groups, last_step)
        self.last_step = last_step
        self.verbose = verbose
        self._last_lr: list[float] = []
        self.step()
        for group, base_lr in zip(groups, self.base_lrs, strict=True):
            group["initial_lr"] = base_lr

    def rates(self, step: int) -> list[float]:
        """Each group's learning rate after `step` steps; changes nothing."""
        check(step >= 0, "the number of steps must be >= 0", step)
        pairs = zip(self.schedules, self.base_lrs, strict=True)
        return [schedule.rate(base_lr, step) for schedule, base_lr in pairs]

    def step(self) -> None:
        """Go on by one step; call it after `optimizer.step()`."""
        not_in_build(
            "scheduler.step()", "self.add_optimizer(..., lr_sch=scheduler) adds it to a call"
        )
        groups = self.optimizer.param_groups
        if len(groups) != len(self.schedules):
            raise OnefoldRuntimeError(
                f"the optimizer has {len(groups)} parameter groups, but this "
                f"{type(self).__name__} was made for {len(self.schedules)}; add groups before "
                "making the scheduler"
            )
        rates = self.rates(self.last_step + 1)
        self.last_step += 1
        self._last_lr = rates
        for index, (group, rate) in enumerate(zip(groups, rates, strict=True)):
            set_rate(group, rate)
            if self.verbose:
                show(self, index, rate)

    def get_last_lr(self) -> list[float]:
        """Each group's learning rate as this scheduler set it last."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """How far the schedule has come; its options are the program's and are not in here."""
        return {
            "last_step": self.last_step,
            "base_lrs": list(self.base_lrs),
            "_last_lr": list(self._last_lr),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave; the optimizer's state holds the learning rates.

        Raises OnefoldValueError when keys are missing or unknown, or groups do not match.
        """
        same_keys(self, state_dict)
        for key in ("base_lrs", "_last_lr"):
            same_groups(self, key, len(state_dict[key]), len(self.schedules))
        check(state_dict["last_step"] >= 0, "last_step must be >= 0", state_dict["last_step"])
        self.last_step = state_dict["last_step"]
        self.base_lrs = list(state_dict["base_lrs"])
        self._last_lr = list(state_dict["_last_lr"])


def _per_group(schedule: Schedule | Sequence[Schedule], groups: int) -> tuple[Schedule, ...]:
    given = tuple(schedule) if isinstance(schedule, Sequence) else (schedule,) * groups
    for one in given:
        if not isinstance(one, Schedule):
            raise OnefoldTypeError(
                f"a schedule needs a method rate(base_lr, step), but {one!r} has none"
            )
    check(len(given) == groups, f"expected {groups} schedules, one for each group", len(given))
    return given


def _base_lrs(groups: Sequence[Group], last_step: int) -> list[float]:
    check(last_step >= -1, "last_step must be -1 or the number of the last step done", last_step)
    found: list[float] = []
    for index, group in enumerate(groups):
        if "initial_lr" in group:
            found.append(group["initial_lr"])
        elif last_step == -1:
            found.append(_number(group["lr"]))
        else:
            raise OnefoldValueError(
                f"param 'initial_lr' is not specified in param_groups[{index}] when resuming an "
                f"optimizer from last_step={last_step}; load the optimizer's state first, or set "
                "it to the group's learning rate at step 0"
            )
    return found


def _number(lr: Any) -> Any:
    return float(lr) if isinstance(lr, Tensor) else lr


# What every scheduler shares, also the one without a closed form.


class Stateful(Protocol):
    """What `show` and `same_keys` need of a scheduler."""

    last_step: int

    def state_dict(self) -> dict[str, Any]: ...


def show(scheduler: Stateful, index: int, rate: float) -> None:
    """Print a group's new learning rate."""
    print(  # noqa: T201 - asked for by verbose=True
        f"Last step {scheduler.last_step} of {type(scheduler).__name__} adjusting learning rate "
        f"of param_groups[{index}] to {rate:.5g}"
    )


def same_keys(scheduler: Stateful, state_dict: Mapping[str, Any]) -> None:
    """Raise OnefoldValueError unless a state has the scheduler's keys."""
    own = set(scheduler.state_dict())
    if own != set(state_dict):
        raise OnefoldValueError(
            f"the state of a {type(scheduler).__name__} has the keys {sorted(own)}, but the given "
            f"state has {sorted(state_dict)}; load what state_dict() of such a scheduler gave"
        )


def same_groups(scheduler: Stateful, key: str, found: int, groups: int) -> None:
    """Raise OnefoldValueError unless a state is for as many groups as the scheduler."""
    if found != groups:
        raise OnefoldValueError(
            f"this {type(scheduler).__name__} has {groups} parameter groups, but {key!r} of the "
            f"given state has {found} values; make the optimizer with the same groups"
        )
