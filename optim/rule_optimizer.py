"""RuleOptimizer: the base of optimizers whose update of an element needs that element alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, NamedTuple, TypeAlias, Unpack

import torch

from ..engine.commit import Change, Write
from ..engine.tensor import Tensor
from ..kernels.select import pick, uses_triton
from ..kernels.update_rule_ref import (
    FLOATS,
    Numbers,
    Options,
    Rule,
    update_by_rule,
    writes_by_rule,
)
from .coupled_decay import decayed_apart
from .device_scalar import DeviceScalar, LocalStep
from .held_numbers import HeldNumbers
from .optimizer import Group, Optimizer, Params, Part, State, zeros_for
from .option_checks import check_options
from .shard_lists import unique_shards
from .step_count import count, next_steps

Lists: TypeAlias = Sequence[list[torch.Tensor]]  # of parameters, gradients and each state


class Stepped(NamedTuple):
    """Parameters of a part at one step, and the writes that keep it on the host."""

    part: Part
    step: int | DeviceScalar
    after: Sequence[Write] = ()


class RuleOptimizer(Optimizer):
    """The base of these optimizers: `rule` gives the new parameter and its state.

    The torch reference, the Triton kernel, the form in graphs and the layouts of the state follow
    from it. See `kernels/update_rules.py`.
    """

    rule: ClassVar[Rule]
    writes_copies: ClassVar[bool] = True
    coupled: ClassVar[bool] = True  # whether weight decay is added to the gradients
    counts_steps: ClassVar[bool] = False  # whether each parameter keeps their number
    linear: ClassVar[bool] = False  # whether each addend of a partial_sum can be updated alone
    recorded: ClassVar[bool] = True  # whether CUDA graphs can launch an update
    recorded_if_skipped: ClassVar[bool] = True  # also where only the device knows the step

    def __init__(self, params: Params, options: Group) -> None:
        check_options(type(self).__name__, options)
        self._uses_triton: dict[bool, bool] = {}  # on cuda, and on the CPU; asked once
        super().__init__(params, options)

    def state_names(self, group: Group) -> tuple[str, ...]:
        raise NotImplementedError

    def is_coupled(self, group: Group) -> bool:
        """Whether weight decay is added to the gradients of a group."""
        return self.coupled

    def numbers_at(self, group: Group, at: LocalStep) -> Numbers:
        """The numbers and flags that the rule takes by name, at a step as `_steps` counts."""
        raise NotImplementedError

    def _steps(self, part: Part) -> Mapping[int | DeviceScalar, Sequence[int]]:
        """The parameters at each step, if the rule depends on it."""
        return next_steps(part) if self.counts_steps else {0: range(len(part.states))}

    def _extra_columns(self, part: Part) -> list[Sequence[Tensor]]:
        """More columns of tensors for `update_lists`."""
        return []

    def _update(self, part: Part) -> list[Write]:
        writes: list[Write] = []
        for own, step, after in self.stepped(part):
            self._begin(own, self.tensor_names(own.group))
            for some in own.by_copies():
                writes += self.update_alike(some, step)
            writes += after
        return writes

    def stepped(self, part: Part) -> Iterator[Stepped]:
        """The part, split by the step that parameters are at."""
        apart = self.is_coupled(part.group) and not self.linear
        for own in decayed_apart(part) if apart else (part,):
            for step, indices in self._steps(own).items():
                some = own.only(indices)
                counted = [partial(count, some.states, step)] if self.counts_steps else []
                yield Stepped(some, step, counted)

    def update_alike(
        self, part: Part, step: int | DeviceScalar, held: HeldNumbers | None = None
    ) -> list[Write]:
        """The update of parameters at one step, of which all or none have copies.

        With `held` numbers are read from memory.
        """
        keys = self.tensor_names(part.group)
        kept = [[state[key] for state in part.states] for key in keys]
        copied = [copy for copy in part.copies if copy is not None]
        columns = (part.params, part.grads, *kept, *self._extra_columns(part))
        writes: list[Write] = []
        for lists in unique_shards(*columns, *([copied] if copied else [])):
            copies = lists.pop() if copied else None
            first = lists[0][0]
            at = part.given.local(first, step)
            at = at if held is None else at.reading(held)
            lists = _of_real(lists) if first.is_complex() else lists
            if copies is None:
                writes += self.update_lists(part.group, lists, at)
            else:
                writes += self.update_with_copies(part.group, lists, at, copies)
        return writes

    def update_with_copies(
        self, group: Group, lists: Lists, at: LocalStep, copies: list[torch.Tensor]
    ) -> Iterable[Write]:
        """`update_lists`, which also writes the copies of the parameters."""
        if self.has_triton_kernel(lists[0][0]):
            return self._update_by_rule(group, lists, at, copies)
        return [*self.update_lists(group, lists, at), partial(_copying, copies, lists[0])]

    def has_triton_kernel(self, like: torch.Tensor) -> bool:
        """Whether a Triton kernel computes the rule for such tensors, or else torch."""
        found = self._uses_triton.get(like.is_cuda)
        if found is None:
            found = self._uses_triton[like.is_cuda] = uses_triton(like.device.type)
        return found and like.dtype in FLOATS

    def tensor_names(self, group: Group) -> list[str]:
        return [name for name in self.state_names(group) if name not in self.numbers]

    def _begin(self, part: Part, keys: Sequence[str]) -> None:
        begin(part.params, part.states, keys)

    def update_lists(self, group: Group, lists: Lists, at: LocalStep) -> Iterable[Write]:
        """The update of local tensors of one device and dtype."""
        return self._update_by_rule(group, lists, at)

    def _update_by_rule(
        self, group: Group, lists: Lists, at: LocalStep, copies: list[torch.Tensor] | None = None
    ) -> Iterable[Write]:
        keys = self.tensor_names(group)
        find, held = partial(self.numbers_at, group, at), at.held
        return updates_by_rule(
            type(self).rule,
            lists,
            keys,
            find() if held is None else held.found(find),
            weight_decay=self.coupled_decay(group),
            maximize=group.get("maximize", False),
            scale=at.scale,
            found_inf=at.found_inf,
            copies=copies,
            memory=None if held is None else held.factors,
        )

    def coupled_decay(self, group: Group) -> float | None:
        """The weight decay that is added to the gradients of a group."""
        return group["weight_decay"] if self.is_coupled(group) else None


def _copying(copies: list[torch.Tensor], params: list[torch.Tensor]) -> list[Change]:
    """Copy the parameters to their copies."""
    return [partial(torch._foreach_copy_, copies, params)]


def updates_by_rule(
    rule: Rule,
    lists: Lists,
    keys: Iterable[str],
    numbers: Numbers,
    **options: Unpack[Options],
) -> Iterable[Write]:
    """The update of lists of parameters, gradients and the states that the keys name."""
    params, grads, *kept = lists
    states = dict(zip(keys, kept, strict=True))
    update = pick(update_by_rule, params[0].device.type)
    if update is update_by_rule:
        return writes_by_rule(rule, params, grads, states, numbers, **options)
    return [lambda: [partial(update, rule, params, grads, states, numbers, **options)]]


def _of_real(lists: Lists) -> list[list[torch.Tensor]]:
    """Lists of tensors, complex ones as their real and imaginary parts, as torch updates them."""
    return [[torch.view_as_real(x) if x.is_complex() else x for x in column] for column in lists]


def begin(params: Sequence[Tensor], states: Sequence[State], keys: Sequence[str]) -> None:
    """Add zeros to the state of each parameter for the keys that it lacks."""
    for param, state in zip(params, states, strict=True):
        for key in keys:
            if key not in state:
                state[key] = zeros_for(param)
