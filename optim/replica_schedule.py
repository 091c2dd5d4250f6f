"""When training compares what ranks hold twice, without being asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..distributed import origins
from ..distributed.world import world
from .replicas import Options, compare_replicas, parameters_of, state_of

if TYPE_CHECKING:
    from .optimizer import Optimizer

# In steps. Before the first regular time, replicas are compared in steps 1, 2, 4, 8, ...
_EVERY = 64
_EVERY_CHECKED = 8  # with ONEFOLD_CHECK=1
# Options that say how to compute, not what.
_IMPLEMENTATION = frozenset(("foreach", "fused", "capturable", "differentiable"))


class ReplicaSchedule:
    """The steps of an optimizer after which ranks compare replicas of parameters, and options."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0

    def after_step(self, optimizer: Optimizer) -> None:
        """Compare when it is time. Raises RankMismatch on every rank of what is not the same.

        Numbers that are apart by rounding pass: machines may differ in the order of additions.
        """
        here = world()
        if not here.joins or here.size == 1:
            return
        self.steps += 1
        check = origins.state.on
        if check:
            _give_origins(optimizer, self.steps)
        every = _EVERY_CHECKED if check else _EVERY
        early = self.steps < every and not self.steps & (self.steps - 1)
        if self.steps % every and not early:
            return
        found = parameters_of(optimizer)
        if check:
            found += state_of(optimizer)
        kind = type(optimizer).__name__
        compare_replicas(found, f"step {self.steps} of {kind}", _options(optimizer), rounding=True)


def _give_origins(optimizer: Optimizer, steps: int) -> None:
    """Say that a step made the parameters: optimizers write into memory, which no op sees."""
    for name, param in parameters_of(optimizer):
        if param.meta.placement is not None:
            origins.give(param.shards, origins.mark(f"{name} after a step"), steps)


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
