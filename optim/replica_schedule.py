"""When training compares what ranks hold twice, without being asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import ref

from ..distributed import provenance
from ..distributed.world import world
from .replicas import (
    HasState,
    Named,
    Options,
    compare_replicas,
    named_buffers,
    parameters_of,
    state_of,
)

if TYPE_CHECKING:
    from .optimizer import Optimizer

# In steps. Before the first regular time, replicas are compared in steps 1, 2, 4, 8, ...
_EVERY = 64
_EVERY_CHECKED = 16  # with ONEFOLD_CHECK=1
# Options that say how to compute, not what.
_IMPLEMENTATION = frozenset(("foreach", "fused", "capturable", "differentiable"))


class RanksApart:
    """How many blocks this process is in, in which ranks train different numbers of steps."""

    blocks = 0


class ReplicaSchedule:
    """The steps of an optimizer after which ranks compare replicas of parameters, and options."""

    __slots__ = ("_marks", "_module", "steps")

    def __init__(self, module: HasState | None = None) -> None:
        self.steps = 0
        self._marks: list[provenance.Mark] = []  # of a step, by parameter
        # Whose buffers are compared; the optimizer does not keep it alive, nor travels with it.
        self._module = None if module is None else ref(module)

    def __reduce__(self) -> tuple[Callable[[int], ReplicaSchedule], tuple[int]]:
        return _at_step, (self.steps,)

    def after_step(self, optimizer: Optimizer) -> None:
        """Compare if it is due. Raises RankMismatch on every rank for replicas that differ.

        Numbers that are apart by rounding pass: machines may differ in the order of additions.
        """
        here = world()
        if not here.joins or here.size == 1 or RanksApart.blocks:
            return
        self.steps += 1
        check = provenance.state.on
        if check:
            self._give_origins(optimizer)
        every = _EVERY_CHECKED if check else _EVERY
        early = self.steps < every and not self.steps & (self.steps - 1)
        if self.steps % every and not early:
            return
        found = parameters_of(optimizer)
        if check:
            found += state_of(optimizer) + self._buffers()
        kind = type(optimizer).__name__
        compare_replicas(found, f"step {self.steps} of {kind}", _options(optimizer), rounding=True)

    def _buffers(self) -> list[Named]:
        """The buffers of the module whose parameters the optimizer has."""
        module = None if self._module is None else self._module()
        return [] if module is None else [*named_buffers(module)]

    def _give_origins(self, optimizer: Optimizer) -> None:
        """Set the step as the origin of the parameters, which optimizers write without an op."""
        params = [param for group in optimizer.param_groups for param in group["params"]]
        if len(self._marks) != len(params):
            named = parameters_of(optimizer)
            self._marks = [provenance.mark(f"{name} after a step") for name, _ in named]
        for param, mark in zip(params, self._marks, strict=True):
            if param.meta.placement is not None:
                provenance.record_all(param.shards, mark, self.steps)


def _at_step(steps: int) -> ReplicaSchedule:
    schedule = ReplicaSchedule()
    schedule.steps = steps
    return schedule


def _options(optimizer: Optimizer) -> Options:
    """The numbers and names in the optimizer's own options, by key and group."""
    return {
        f"{key} of group {number}": _text(group[key])
        for number, group in enumerate(optimizer.param_groups)
        for key in sorted(optimizer.defaults.keys() & group.keys() - _IMPLEMENTATION)
        if _is_plain(group[key])
    }


def _text(value: object) -> str:
    """The text of an option. Machines may compute the last digits of a schedule's rate apart."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))
