"""CompositeScheduler: schedulers made of other schedulers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ...engine.argument_errors import checks_own_arguments, with_argument_errors
from ...engine.commit import Change, restored
from ...errors import OnefoldNotImplementedError, OnefoldValueError
from ..optimizer import Optimizer, set_rate
from .recurrent_rates import rate_after, restarted_rate
from .scheduler import LRScheduler, Schedule, Scheduler


class CompositeScheduler(LRScheduler):
    """The base of SequentialLR and ChainedScheduler.

    Where all parts have schedules, so does it. Otherwise a subclass of users is among the parts,
    which gives the rates of its next step by torch's `get_lr()`: each step then steps the parts, in
    the order of torch, and each finds the rates in the groups that those before it have set.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        parts: Sequence[LRScheduler],
        schedules: Sequence[Schedule],
        last_step: int = -1,
        verbose: bool = False,
        *,
        last_epoch: int | None = None,
    ) -> None:
        self._parts = tuple(parts)
        if not schedules:
            for group in optimizer.param_groups:
                set_rate(group, group["initial_lr"])
            for part in _within(self):
                part.last_step = -1
                if isinstance(part, CompositeScheduler) and part._parts:
                    part.schedules = ()
        super().__init__(optimizer, tuple(schedules), last_step, verbose, last_epoch=last_epoch)

    def turns(self, step: int) -> Sequence[tuple[LRScheduler, bool]]:
        """The parts that go on at a step, and whether each starts again at its step 0."""
        raise NotImplementedError

    @checks_own_arguments
    def changes(self, epoch: float | None = None) -> list[Change]:
        if self.schedules:
            return super().changes(epoch)
        if epoch is not None:
            raise OnefoldNotImplementedError(
                f"{type(self).__name__}.step(epoch): a part with get_lr() gives the rates of its "
                "next step only; call step() once for each"
            )
        groups, parts, step = self._param_groups(), [*_within(self)], self.last_step + 1
        undo: list[Change] = [partial(group.update, lr=group["lr"]) for group in groups]
        for each in (self, *parts):
            keys = ("last_step", "_last_lr", "_is_initial")
            before = {key: getattr(each, key) for key in keys}
            undo.append(partial(each.__dict__.update, before))
        with restored(*undo):
            for part in parts:
                part._is_initial = self._is_initial
            _advance(self, False)
            rates = self.get_last_lr()
            done: list[Change] = []
            for part in parts:  # those that have not begun wait at step 0
                begun, last = max(0, part.last_step), part._last_lr
                done.append(partial(part.__dict__.update, last_step=begun, _last_lr=last))
        return [*self._setting(dict(enumerate(rates)), last_step=step, _last_lr=rates), *done]

    def _next_rates(self, step: int) -> list[float]:
        return self._rates(step) if self._is_initial else super()._next_rates(step)

    def state_dict(self) -> dict[str, Any]:
        """How far the scheduler has come, and its parts where they are stepped."""
        found = Scheduler.state_dict(self)
        if not self.schedules:
            found["_schedulers"] = [part.state_dict() for part in self._parts]
        return found

    @with_argument_errors
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave; the optimizer's state holds the learning rates.

        Raises OnefoldValueError when keys are missing or unknown, or groups or parts do not match.
        """
        before = self.state_dict()
        super().load_state_dict(state_dict)
        vars(self).pop("_schedulers", None)
        if self.schedules:
            return
        try:
            self._load_parts(state_dict["_schedulers"])
        except BaseException:
            self._load_parts(before.pop("_schedulers"))
            vars(self).update(before)
            raise

    def _load_parts(self, states: Sequence[Mapping[str, Any]]) -> None:
        if len(states) != len(self._parts):
            raise OnefoldValueError(
                f"this {type(self).__name__} has {len(self._parts)} schedulers, but the given "
                f"state has those of {len(states)}; load what state_dict() of such a scheduler gave"
            )
        for part, state in zip(self._parts, states, strict=True):
            part.load_state_dict(state)


def _within(scheduler: CompositeScheduler) -> Iterator[LRScheduler]:
    """All parts, with those of parts."""
    for part in scheduler._parts:
        yield part
        if isinstance(part, CompositeScheduler):
            yield from _within(part)


def _advance(scheduler: LRScheduler, restart: bool) -> None:
    """Let a scheduler set the rates of its next step, or with `restart` those of its step 0."""
    groups = scheduler.optimizer.param_groups
    step = 0 if restart else scheduler.last_step + 1
    if scheduler.schedules:
        pairs = zip(scheduler.schedules, groups, scheduler.base_lrs, strict=True)
        rates = [
            restarted_rate(schedule, float(group["lr"]), base)
            if restart
            else rate_after(schedule, float(group["lr"]), base, step)
            for schedule, group, base in pairs
        ]
    elif isinstance(scheduler, CompositeScheduler):
        if restart:
            for part in _within(scheduler):
                part.last_step = -1
        for part, restarts in scheduler.turns(step):
            _advance(part, restarts)
        rates = [float(group["lr"]) for group in groups]
    else:
        rates = scheduler._asked(step, restart)
    scheduler.last_step, scheduler._last_lr = step, rates
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate
