"""When optimizers compare replicas, and what they note for other ranks in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..distributed.world import world
from ..engine.noting import note
from ..engine.tensor import Tensor
from .replicas import compare_replicas, parameters_of, state_of

if TYPE_CHECKING:
    from .optimizer import Optimizer

# In steps. Before the first regular time, replicas are compared in steps 1, 2, 4, 8, ...
_EVERY = 64
_EVERY_CHECKED = 8  # with ONEFOLD_CHECK=1


class ReplicaWatch:
    """What an optimizer does for other ranks to find that this one is different."""

    def __init__(self) -> None:
        self.steps = 0

    def note_options(self, optimizer: Optimizer) -> None:
        """Note that a step begins, and its options."""
        if not _joins():
            return
        kind = type(optimizer).__name__
        for group in optimizer.param_groups:
            metas = {param.meta for param in group["params"]}
            options = [(key, value) for key, value in sorted(group.items()) if _is_plain(value)]
            names = ", ".join(key for key, _ in options)
            note(f"{kind}.step() with {names}", metas, *[value for _, value in options])

    def compare(self, optimizer: Optimizer) -> None:
        """Compare the parameters' replicas when it is time, after a step."""
        if not _joins():
            return
        self.steps += 1
        checks = world().connection().check
        every = _EVERY_CHECKED if checks else _EVERY
        if self.steps % every and (self.steps > every or self.steps & (self.steps - 1)):
            return
        found = parameters_of(optimizer)
        if checks:
            found += state_of(optimizer)
        compare_replicas(found, f"step {self.steps}")


def _joins() -> bool:
    here = world()
    return here.joins and here.size > 1


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return not isinstance(value, (Tensor, list)) and (
        value is None or isinstance(value, (bool, int, float, str))
    )
