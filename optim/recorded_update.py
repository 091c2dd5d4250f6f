"""Recorded update: the update of a group as a CUDA graph launches it, and the host's half of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import is_

import torch

from ..engine.commit import Change, Write
from ..engine.tensor import Shards, Tensor
from ..graph.cuda_graphs.recorded_step import HostHalf, Recording
from .device_scalar import DeviceScalar, Given, LocalStep
from .held_numbers import HeldNumbers, flags_of, values_of
from .optimizer import Group, Optimizer, Part, State, rate_of
from .rule_optimizer import RuleOptimizer
from .step_count import count

_STARTED: State = {"step": 0}  # in place of a state whose step only the device knows
_NO_CONSTANTS = frozenset(("params", "lr", "initial_lr", "lr_scale"))  # of a group's options


@dataclass(frozen=True)
class Updated:
    """What is updated: parameters of a group, whose states belong to their `owners`."""

    optimizer: Optimizer
    group: Group
    owners: Sequence[Tensor]
    checked: bool  # whether a scaler may skip it

    def why_not_recorded(self) -> str:
        """Why the update cannot be recorded; empty if it can."""
        optimizer, group = self.optimizer, self.group
        name = type(optimizer).__name__
        own = type(optimizer).__module__.startswith(f"{__package__}.")
        if not (own and isinstance(optimizer, RuleOptimizer) and optimizer.recorded):
            return f"the update of {name} is computed by the host"
        if self.checked and not optimizer.recorded_if_skipped:
            return f"{name} needs the number of steps on the host, and a scaler may skip some"
        if _is_on_device(rate_of(group)):
            return "a learning rate is a tensor on the device"
        decayed = group.get("weight_decay") and optimizer.is_coupled(group)
        if decayed and not optimizer.linear and any(each.meta.partial for each in self.owners):
            return f"{name} adds weight decay to the gradients of partial_sum parameters"
        return ""


class RecordedUpdate(Recording):
    """An update whose numbers are in memory, and whose states stay where they are."""

    def __init__(
        self,
        optimizer: RuleOptimizer,
        updated: Updated,
        part_of: Callable[[Sequence[object], Sequence[State]], Part],
    ) -> None:
        """`part_of` makes a part of the inputs of the step and the states."""
        self._optimizer, self._group, self._owners = optimizer, updated.group, updated.owners
        self._part_of = part_of
        self._states = self._found_states()
        self._kept = self._shards(self._states)
        # The number of steps on the device, where those that are skipped do not count.
        self._done = _step_on_device(self._states)
        self._on_device = updated.checked or self._done is not None
        self._constant = self._constants()
        self._held: list[HeldNumbers] = []
        self._alike: list[object] = []

    @staticmethod
    def of(
        updated: Updated, part_of: Callable[[Sequence[object], Sequence[State]], Part]
    ) -> RecordedUpdate | None:
        """A recording; None while a state, or a number of steps that it needs, does not exist."""
        optimizer = updated.optimizer
        assert isinstance(optimizer, RuleOptimizer)
        made = RecordedUpdate(optimizer, updated, part_of)
        counted = made._done is not None or not (updated.checked and optimizer.counts_steps)
        usable = made._done is None or (optimizer.recorded_if_skipped and made._counts_alone())
        if None in made._kept or not (counted and usable and made._is_at(made._states)):
            return None
        rate = rate_of(updated.group)
        for own, step, _ in made._stepped(made._states, rate):
            numbers = optimizer.numbers_at(own.group, LocalStep(rate, step))
            decay = optimizer.coupled_decay(own.group)
            made._held.append(HeldNumbers(numbers, decay, rate, made._on_device))
            made._alike.append(_identity(own))
        return made

    def form(self) -> object:
        return [held.flags for held in self._held], self._constant

    def refresh(self) -> HostHalf | None:
        states, rate = self._found_states(), rate_of(self._group)
        same = all(map(is_, self._shards(states), self._kept)) and self._is_at(states)
        if not same or _is_on_device(rate) or self._constants() != self._constant:
            return None
        stepped = self._stepped(states, rate)
        if [_identity(own) for own, _, _ in stepped] != self._alike:
            return None
        values: list[float] = []
        changes: list[Change] = []
        for (own, step, after), held in zip(stepped, self._held, strict=True):
            numbers = self._optimizer.numbers_at(own.group, LocalStep(rate, step))
            if flags_of(numbers) != held.flags:
                return None
            values += values_of(numbers, self._optimizer.coupled_decay(own.group), rate, step)
            changes += chain.from_iterable(write() for write in after)
        if self._done is not None:
            self._done = DeviceScalar(self._done.value)  # without copies of what it was
            changes = count(states, self._done)
        return HostHalf(values, changes)

    def place(self, memory: torch.Tensor) -> None:
        parts = memory.split([held.size for held in self._held])
        for held, part in zip(self._held, parts, strict=True):
            held.place(part)

    def launch(self, given: Sequence[object]) -> None:
        part = self._part_of(given, self._states)
        # The rate is among what is held; that of the part may be on the device, and is not read.
        part = part._replace(given=part.given._replace(lr=0.0))
        stepped = self._optimizer.stepped(part)
        for (own, step, _), held in zip(stepped, self._held, strict=True):
            for some in own.by_copies():
                for write in self._optimizer.update_alike(some, step, held):
                    for change in write():
                        change()
            if isinstance(step, DeviceScalar):
                own.states[0]["step"].value.copy_(step.value)

    def static(self) -> list[torch.Tensor]:
        found = [x for shards in self._kept if shards is not None for x in shards]
        return found if self._done is None else [*found, self._done.value]

    # What the host finds.

    def _found_states(self) -> list[State]:
        state = self._optimizer.state
        return [state.get(owner) or {} for owner in self._owners]

    def _shards(self, states: Sequence[State]) -> list[Shards | None]:
        """The memory of all states; None for those that do not exist."""
        keys = self._optimizer.tensor_names(self._group)
        found = [state.get(key) for state in states for key in keys]
        return [None if x is None else x.shards for x in found]

    def _is_at(self, states: Sequence[State]) -> bool:
        """Whether the number of steps is on the device, or the host, as before."""
        if self._done is None:
            return _step_on_device(states) is None
        steps = {id(step): step for step in [state.get("step") for state in states]}.values()
        memory = self._done.value  # which the updates of other graphs may share
        return all(isinstance(step, DeviceScalar) and step.value is memory for step in steps)

    def _counts_alone(self) -> bool:
        """Whether no other parameters share the number of steps on the device, which is written."""
        assert self._done is not None
        own = {id(state) for state in self._states}
        others = [state for state in self._optimizer.state.values() if id(state) not in own]
        steps = [state.get("step") for state in others]
        memory = self._done.value
        return not any(isinstance(step, DeviceScalar) and step.value is memory for step in steps)

    def _constants(self) -> object:
        """Options that the launches keep; the others are among the numbers."""
        group, optimizer = self._group, self._optimizer
        owned = [owner.shards[0] for owner in self._owners if owner.shards]
        if self._on_device or not all(map(optimizer.has_triton_kernel, owned)):
            return {key: value for key, value in group.items() if key not in _NO_CONSTANTS}
        names = optimizer.tensor_names(group)
        return group.get("maximize", False), optimizer.is_coupled(group), names

    def _stepped(
        self, states: Sequence[State], rate: float | torch.Tensor
    ) -> list[tuple[Part, int, Sequence[Write]]]:
        """The parameters at each step by the host's count, which may differ from the device's."""
        if self._done is not None:
            states = [_STARTED] * len(states)
        part = Part(self._group, self._owners, self._owners, states, Given(rate))
        return [(own, int(step), after) for own, step, after in self._optimizer.stepped(part)]


def _step_on_device(states: Sequence[State]) -> DeviceScalar | None:
    """The first number of steps on the device."""
    steps = [state.get("step") for state in states]
    return next((step for step in steps if isinstance(step, DeviceScalar)), None)


def _identity(part: Part) -> object:
    return [*map(id, part.params)]


def _is_on_device(rate: float | torch.Tensor) -> bool:
    return isinstance(rate, torch.Tensor) and rate.is_cuda
