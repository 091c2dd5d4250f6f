"""Optimizers whose updates depend on numbers of each parameter that the host keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat

import torch

from ..engine.commit import Change, each
from ..kernels.update_rule_ref import Numbers
from .device_scalar import LocalStep
from .optimizer import Group, Part, State
from .rule_optimizer import RuleOptimizer, Stepped

Kept = dict[str, float]  # what is kept of a parameter besides tensors, by name


class CountedOnHost(RuleOptimizer):
    """The base of these optimizers.

    A gradient scaler's decision to skip a step is read, as these numbers are the host's.
    """

    recorded_if_skipped = False

    def advance(self, group: Group, rate: float, kept: Kept) -> tuple[Kept, Kept]:
        """The options of the group for `numbers_at` at this step, and the state to keep after it.

        `kept` is what was kept before it, empty at a parameter's first step.
        """
        raise NotImplementedError

    def stepped(self, part: Part) -> Iterator[Stepped]:
        if part.given.is_skipped():
            return
        names = [name for name in self.state_names(part.group) if name in self.numbers]
        alike: dict[tuple[float, ...], list[int]] = {}
        for index, state in enumerate(part.states):
            key = tuple([float(state[name]) for name in names]) if state else ()
            alike.setdefault(key, []).append(index)
        for values, indices in alike.items():
            # Names and values are as many, or there are no values.
            used, after = self.advance(
                part.group, float(part.given.lr), dict(zip(names, values, strict=False))
            )
            own = part.only(indices)._replace(group={**part.group, **used})
            for some in super().stepped(own):
                kept = partial(_keep, some.part.states, after)
                yield some._replace(after=[*some.after, kept])


def _keep(states: Sequence[State], numbers: Kept) -> list[Change]:
    return [each(dict.update, states, repeat(numbers))]


def as_kept(number: float) -> float:
    """A number as torch stores it for a parameter: rounded to the default dtype's precision."""
    wide = torch.get_default_dtype() is torch.float64
    return float(torch.tensor(number, dtype=torch.float64 if wide else torch.float32))


def decoupled(group: Group) -> Kept:
    """The options of a step with decoupled weight decay."""
    if not group["decoupled_weight_decay"]:
        return {}
    return {"weight_decay": 0.0, "decoupled": group["weight_decay"]}


def shrinking(group: Group, at: LocalStep) -> Numbers:
    """The factor of parameters before their update, by decoupled weight decay."""
    return {"decay": 1.0 - at.lr * group["decoupled"]} if group.get("decoupled") else {}
