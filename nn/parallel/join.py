"""Join: training on ranks that have different numbers of batches (torch.distributed.algorithms)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple

import torch

from ...distributed import collectives
from ...distributed.world import world
from ...engine.placement import Placement
from ...errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from ...optim.replica_schedule import RanksApart

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """What a rank does that has no batches left, for one object; a subclass gives both methods."""

    def main_hook(self) -> None:
        """Take part in the communication of one step of the ranks that still have batches."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called once all ranks are done; `is_last_joiner` on those that had most batches."""


class JoinConfig(NamedTuple):
    """How an object communicates within a Join."""

    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool


class Joinable(ABC):
    """The base of objects that Join takes, such as DistributedDataParallel.

    Each of their steps begins with `Join.notify_join_context(self)`.
    """

    _join_config: JoinConfig = JoinConfig(False, False, False)

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook for one Join, which hands on its keywords."""

    @property
    @abstractmethod
    def join_device(self) -> torch.device:
        """The device of what is sent."""

    @property
    @abstractmethod
    def join_process_group(self) -> Placement:
        """The ranks that take part."""


def sum_over(values: Sequence[int], ranks: tuple[int, ...], device: torch.device) -> list[int]:
    """The sums of the ranks' integers; those of one process are those of all its ranks."""
    if not world().launched or len(ranks) == 1:
        return list(values)
    made = collectives.all_reduce(torch.tensor(values, device=device), ranks, "sum")
    return [int(value) for value in made.tolist()]


class Join:
    """A block in which ranks may have different numbers of batches.

    A rank that leaves the block early takes part in the communication of the others until all have
    left. Then all get the parameters and buffers of a rank that had most batches; the state of an
    optimizer stays each rank's own, as in torch. `joinables` are DistributedDataParallel modules
    and the like, on one placement; a step of a rank calls each of them. Further keywords are
    theirs: `divide_by_initial_world_size` (True) for the mean of gradients over all ranks, else
    over those that still have batches. With
    `throw_on_early_termination` all ranks raise OnefoldRuntimeError once one has no batches left.
    Raises OnefoldValueError without joinables or for several placements, and OnefoldTypeError for
    other objects.

    >>> import onefold as flow
    >>> p = flow.placement("cpu", [0, 1])
    >>> model = flow.nn.parallel.DistributedDataParallel(flow.nn.Linear(4, 2), process_group=p)
    >>> with Join([model]):
    ...     for x in (flow.ones(2, 4), flow.ones(2, 4)):  # on each rank, its own
    ...         model(x).sum().backward()
    """

    def __init__(
        self,
        joinables: Sequence[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if not joinables:
            raise OnefoldValueError("The join context manager requires at least one joinable")
        for each in joinables:
            given: object = each
            if not isinstance(given, Joinable):
                raise OnefoldTypeError(
                    "Join takes DistributedDataParallel modules and other Joinable objects, but "
                    f"got {type(given).__name__}. Leave an optimizer out; one whose state is split "
                    "over the ranks, such as ZeroRedundancyOptimizer, needs all of them in each "
                    "step: give all ranks as many batches"
                )
        first = joinables[0]
        if any(each.join_process_group is not first.join_process_group for each in joinables):
            raise OnefoldValueError("Using join context manager with multiple process groups")
        self._joinables = list(joinables)
        self._ranks = tuple(first.join_process_group.flat_ranks)
        self._device = first.join_device
        self._enable = enable and world().launched
        self._throws = throw_on_early_termination
        self._options = kwargs
        self._hooks: list[JoinHook] = []

    def __enter__(self) -> None:
        if self._enable:
            self._hooks = [each.join_hook(**self._options) for each in self._joinables]
            RanksApart.blocks += 1
            for index, each in enumerate(self._joinables):
                each._join_config = JoinConfig(True, self._throws, index == 0)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._enable:
            return
        try:
            if kind is None:
                self._wait_for_others()
        finally:
            RanksApart.blocks -= 1
            for each in self._joinables:
                each._join_config = JoinConfig(False, False, False)

    def _wait_for_others(self) -> None:
        last = True
        while True:
            going, _ = sum_over([0, int(self._throws)], self._ranks, self._device)
            if not going:
                break
            if self._throws:
                raise OnefoldRuntimeError(f"Rank {world().rank} exhausted all inputs.")
            for hook in self._hooks:
                hook.main_hook()
            last = False
        for hook in self._hooks:
            hook.post_hook(last)

    @staticmethod
    def notify_join_context(joinable: Joinable) -> int | None:
        """Tell the ranks that are done that this one begins a step; how many ranks do so.

        None for other objects than the first of a Join. Raises OnefoldRuntimeError on all ranks,
        with `throw_on_early_termination`, once one is done.
        """
        config = joinable._join_config
        if not config.enable or not config.is_first_joinable:
            return None
        ranks = tuple(joinable.join_process_group.flat_ranks)
        going, done = sum_over([1, 0], ranks, joinable.join_device)
        if done and config.throw_on_early_termination:
            raise OnefoldRuntimeError(
                "Detected at least one rank that exhausted inputs. Throwing across all ranks."
            )
        return going
