"""LRScheduler: sets the learning rates that a schedule gives for the number of steps."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch

from ...engine.argument_errors import checks_own_arguments, with_argument_errors
from ...engine.commit import Change, finish
from ...engine.tensor import Tensor
from ...errors import (
    OnefoldNotImplementedError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    OnefoldValueError,
    warn,
)
from ..gradient_layouts import not_in_build
from ..optimizer import Group, Optimizer, set_rate
from .recurrence import recurrent


@runtime_checkable
class Schedule(Protocol):
    """A learning rate as a pure function of the base rate and the number of steps taken."""

    def rate(self, base_lr: float, step: int) -> float: ...


def check(allowed: bool, rule: str, found: object) -> None:
    """Raise OnefoldValueError with the rule and the value, unless `allowed`."""
    if not allowed:
        raise OnefoldValueError(f"{rule}, but got {found}")


def warn_of_epoch() -> None:
    """Warn, as torch does, of the argument `epoch` of a scheduler's step."""
    warn(
        "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
        "possible. Please use `scheduler.step()` to step the scheduler. The rates are those of the "
        "closed form at that step.",
        UserWarning,
    )


class Scheduler:
    """The base of all schedulers, also of the one without a closed form: groups and state."""

    state_keys: ClassVar[tuple[str, ...]]  # attributes; lists have an entry for each group

    def __init__(self, optimizer: Optimizer, verbose: bool) -> None:
        if not isinstance(optimizer, Optimizer):
            raise OnefoldTypeError(f"{type(optimizer).__name__} is not an Optimizer object")
        self.optimizer = optimizer
        self.verbose = verbose
        self.last_step = 0
        self._step_count = 0  # of calls of step(), one more than the steps; which subclasses read
        self._last_lr: list[float] = []
        self._groups = len(optimizer.param_groups)
        # Of rates that are tensors, by the indices of groups: the tensor, its version, the rate
        # that was written, and its step. The version is None until it is written.
        self._written: dict[int, tuple[Tensor, int | None, float, object]] = {}

    @property
    def last_epoch(self) -> int:
        """The number of steps, under torch's name."""
        return self.last_step

    @last_epoch.setter
    def last_epoch(self, step: int) -> None:
        self.last_step = step

    def get_last_lr(self) -> list[float]:
        """Each group's learning rate after the last step."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """The progress of the scheduler, without its options, which belong to the program."""
        values = {key: getattr(self, key) for key in self.state_keys}
        return {key: list(x) if isinstance(x, list) else x for key, x in values.items()}

    @with_argument_errors
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from the result of `state_dict`; the optimizer's state holds the learning rates.

        Raises OnefoldValueError when keys are missing or unknown, or groups do not match.
        """
        name, own = type(self).__name__, self.state_dict()
        if own.keys() != state_dict.keys():
            raise OnefoldValueError(
                f"the state of a {name} has the keys {sorted(own)}, but the given state has "
                f"{sorted(state_dict)}; load what state_dict() of such a scheduler gave"
            )
        for key, value in own.items():
            of_groups = isinstance(value, list) and key in self.state_keys
            if of_groups and len(state_dict[key]) != self._groups:
                raise OnefoldValueError(
                    f"this {name} has {self._groups} parameter groups, but {key!r} of the given "
                    f"state has {len(state_dict[key])} values; make the optimizer with the same "
                    "groups"
                )
        check(state_dict["last_step"] >= 0, "last_step must be >= 0", state_dict["last_step"])
        for key, value in own.items():
            given = state_dict[key]
            setattr(self, key, list(given) if isinstance(value, list) else given)

    def _param_groups(self) -> list[Group]:
        """The groups to step. Raises OnefoldRuntimeError if some were added to the optimizer."""
        groups = self.optimizer.param_groups
        if len(groups) != self._groups:
            raise OnefoldRuntimeError(
                f"the optimizer has {len(groups)} parameter groups, but this "
                f"{type(self).__name__} was made for {self._groups}; add groups before making the "
                "scheduler"
            )
        return groups

    def _setting(self, rates: Mapping[int, float], **values: object) -> list[Change]:
        """The changes that set rates, by the indices of their groups, and attributes."""
        groups = self.optimizer.param_groups
        count = self._step_count + 1
        changes: list[Change] = [partial(self.__dict__.update, values, _step_count=count)]
        for index, rate in rates.items():
            lr = groups[index]["lr"]
            if isinstance(lr, Tensor):
                step = values["last_step"]
                self._written[index] = (lr, None, rate, step)
                set_rate(groups[index], rate)
                self._written[index] = (lr, lr.version, rate, step)
            else:
                changes.append(partial(groups[index].__setitem__, "lr", rate))
            if self.verbose:
                print(  # noqa: T201 - asked for by verbose=True
                    f"Last step {values['last_step']} of {type(self).__name__} adjusting learning "
                    f"rate of param_groups[{index}] to {rate:.5g}"
                )
        return changes


class LRScheduler(Scheduler):
    """Sets the learning rate of every parameter group; `step` advances by one step.

    `schedule` is any object with a pure method `rate(base_lr, step)`, or a sequence of one for each
    group. Base rates are the groups' "initial_lr", which the first scheduler of an optimizer sets
    to their "lr". Step 0 is set at once; the constructor takes the number of the last step done, -1
    for none, which is also taken as `last_epoch`, torch's name for it. Raises OnefoldTypeError for
    an invalid optimizer or schedule, and OnefoldValueError for a bad `last_step` or, when resuming,
    a group without "initial_lr".

    A subclass may give the rates by a method instead, and call the constructor without a schedule:
    torch's `get_lr()`, of all groups at `last_epoch`, or OneFlow's `get_lr(base_lr, step)`.

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

    state_keys = ("last_step", "base_lrs", "_last_lr")
    momenta: tuple[Schedule, ...] = ()  # of the groups, where momentum is set, too
    takes_epochs: ClassVar[bool] = False  # whether `step(epoch)` is usual, and takes fractions
    _get_lr_called_within_step = False  # which torch's subclasses look at
    _is_initial = False

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: Schedule | Sequence[Schedule] | int | None = None,
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        super().__init__(optimizer, verbose)
        last_step = last_step if last_epoch is None else last_epoch
        form = _form(type(self))
        if form is not None and (schedule is None or isinstance(schedule, int)):
            # Where torch and OneFlow take the number of the last step.
            last_step = last_step if schedule is None else schedule
            schedule = _OfMethod(self) if form == "get_lr(base_lr, step)" else ()
        groups = optimizer.param_groups
        own = form == "get_lr()" or schedule == ()  # then each step asks for its rates
        self.schedules = () if own else _per_group(schedule, len(groups))
        self.base_lrs = base_rates(groups, last_step)
        self.last_step = last_step
        if own:  # which get_lr() may read
            _set_initial(groups, self.base_lrs)
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False
        _set_initial(groups, self.base_lrs)

    def get_lr(self, *args: Any, **kwargs: Any) -> Any:
        """To be overridden by subclasses: a list with each group's rate at `last_epoch`.

        Raises OnefoldNotImplementedError in this class; `get_last_lr()` has the latest rates.
        """
        raise OnefoldNotImplementedError(
            f"{type(self).__name__}.get_lr: rates are given by schedules; the latest are "
            "get_last_lr(), and those of any step rates(step)"
        )

    def rates(self, step: int) -> list[float]:
        """Each group's learning rate after `step` steps; changes nothing.

        Raises OnefoldNotImplementedError where a subclass gives rates by torch's `get_lr()`.
        """
        return self._rates(step)

    def _rates(self, step: int) -> list[float]:
        check(step >= 0, "the number of steps must be >= 0", step)
        if not self.schedules:
            raise OnefoldNotImplementedError(
                f"{type(self).__name__}.rates: get_lr() gives the rates of the next step only; "
                "define get_lr(self, base_lr, step), or an object with rate(base_lr, step)"
            )
        pairs = zip(self.schedules, self.base_lrs, strict=True)
        return [schedule.rate(base_lr, step) for schedule, base_lr in pairs]

    def step(self, epoch: float | None = None) -> None:
        """Advance by one step; call it after `optimizer.step()`.

        With `epoch`, which torch has deprecated, the rates are those after so many steps.
        """
        not_in_build(
            "scheduler.step()", "self.add_optimizer(..., lr_sch=scheduler) adds it to a call"
        )
        if epoch is not None and not self.takes_epochs:
            warn_of_epoch()
        finish([partial(self.changes, epoch)])

    @checks_own_arguments
    def changes(self, epoch: float | None = None) -> list[Change]:
        """What `step` changes; see `engine/commit.py`."""
        self._param_groups()
        step = self.step_at(epoch)
        if not self.schedules:
            rates = self._asked(step, epoch is not None)
        else:
            rates = self._rates(step) if epoch is not None else self._next_rates(step)
        return self._setting(dict(enumerate(rates)), last_step=math.floor(step), _last_lr=rates)

    def _next_rates(self, step: int) -> list[float]:
        """The rates of the next step, which go on from those that others have set, as in torch."""
        columns = [*zip(self.optimizer.param_groups, self.schedules, self.base_lrs, strict=True)]
        # First all of the step before: schedules remember the last step that they were asked for.
        changed: dict[int, float] = {}
        for index, (group, schedule, base_lr) in enumerate(columns):
            following = recurrent(schedule)
            if following is None:
                continue
            lr = group["lr"]
            now, done = self._present(index, lr, step)
            if done:
                changed[index] = now
            elif not self._is_planned(now, lr, schedule, base_lr, step):
                changed[index] = following.after(now, base_lr, step)
        return [
            changed[index] if index in changed else schedule.rate(base_lr, step)
            for index, (_, schedule, base_lr) in enumerate(columns)
        ]

    def _present(self, index: int, lr: Any, step: int) -> tuple[float, bool]:
        """The rate of a group, and whether it is that of `step`: an interrupted step wrote it.

        A tensor on a device is read only where something else has written to it.
        """
        if not isinstance(lr, Tensor):
            return lr, False
        tensor, version, rate, of_step = self._written.get(index, (None, None, 0.0, None))
        if tensor is lr and version == lr.version:
            return rate, of_step == step
        now = float(lr)
        return now, tensor is lr and version is None and of_step == step and now == held(rate, lr)

    def _is_planned(
        self, now: float, lr: Any, schedule: Schedule, base_lr: float, step: int
    ) -> bool:
        """Whether the present rate is the one that the schedule has before a step."""
        planned = [schedule.rate(base_lr, step - 1) if step else base_lr]
        if self._is_initial and step:  # the state was not loaded, or was saved after the step
            planned += [base_lr, schedule.rate(base_lr, step)]
        return any(now == rate or now == held(rate, lr) for rate in planned)

    @checks_own_arguments
    def step_at(self, epoch: float | None) -> Any:
        """The number of steps after the next one, which may be given."""
        if epoch is None:
            return self.last_step + 1
        fits = self.takes_epochs or epoch == math.floor(epoch)
        check(fits, f"{type(self).__name__}.step: epoch must be a whole number", epoch)
        return epoch

    def _asked(self, step: int, closed: bool) -> list[float]:
        """The rates that a subclass computes for a step by torch's methods."""
        before = self.last_step, self._step_count, self._get_lr_called_within_step
        self.last_step, self._step_count = step, self._step_count + 1
        self._get_lr_called_within_step = True
        try:
            form = getattr(self, "_get_closed_form_lr", None) if closed else None
            found = (form or self.get_lr)()
        finally:
            self.last_step, self._step_count, self._get_lr_called_within_step = before
        rates = list(found) if isinstance(found, Iterable) else None
        if rates is None or len(rates) != self._groups:
            raise OnefoldTypeError(
                f"{type(self).__name__}.get_lr() must return a list with a rate for each of the "
                f"{self._groups} parameter groups, but returned {found!r}"
            )
        return [_number(rate) for rate in rates]

    def state_dict(self) -> dict[str, Any]:
        """The progress of the scheduler, without its options, which belong to the program.

        A subclass with torch's `get_lr()` may keep anything: all attributes of its own are in here.
        """
        found = super().state_dict()
        if not self.schedules:
            found.update({key: x for key, x in vars(self).items() if key not in _NOT_OWN})
        return found


# What is no attribute of a subclass of users.
_NOT_OWN = frozenset(
    """optimizer verbose schedules base_lrs last_step _last_lr _groups _is_initial
    _written _get_lr_called_within_step""".split()
)


class _OfMethod:
    """A schedule by OneFlow's method `get_lr(base_lr, step)` of a scheduler."""

    def __init__(self, scheduler: LRScheduler) -> None:
        self._scheduler = scheduler

    def rate(self, base_lr: float, step: int) -> float:
        return float(self._scheduler.get_lr(base_lr, step))


def _form(kind: type[LRScheduler]) -> str | None:
    """How a user-defined subclass computes its rates; None if it has a schedule."""
    if kind.get_lr is not LRScheduler.get_lr:
        parameters = inspect.signature(kind.get_lr).parameters.values()
        needed = [each for each in parameters if each.default is each.empty and each.kind <= 1]
        return "get_lr(base_lr, step)" if len(needed) == 3 else "get_lr()"
    return "step()" if kind.step is not LRScheduler.step else None


def _set_initial(groups: Sequence[Group], base_lrs: Sequence[float]) -> None:
    for group, base_lr in zip(groups, base_lrs, strict=True):
        group["initial_lr"] = base_lr


def _per_group(schedule: object, groups: int) -> tuple[Schedule, ...]:
    given = tuple(schedule) if isinstance(schedule, Sequence) else (schedule,) * groups
    found: list[Schedule] = []
    for one in given:
        if not isinstance(one, Schedule):
            raise OnefoldTypeError(
                f"a schedule needs a method rate(base_lr, step), but {one!r} has none; give an "
                "object that has it, use LambdaLR(optimizer, function_of_the_step), or let a "
                "subclass of LRScheduler define get_lr(self)"
            )
        found.append(one)
    check(len(given) == groups, f"expected {groups} schedules, one for each group", len(given))
    return tuple(found)


def base_rates(groups: Sequence[Group], last_step: int) -> list[float]:
    """The rate of each group at step 0, of a scheduler that continues after `last_step`."""
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


def held(rate: float, lr: Any) -> float:
    """A rate as a group holds it, whose present one is `lr`: a tensor rounds it to its dtype."""
    return torch.tensor(rate, dtype=lr.dtype).item() if isinstance(lr, Tensor) else rate


def _number(lr: Any) -> Any:
    return float(lr) if isinstance(lr, Tensor) else lr
