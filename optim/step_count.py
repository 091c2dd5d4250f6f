"""Numbers of steps: which parameters are at which, and the next that each of them keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

import torch

from ..engine.commit import Change, each
from .device_scalar import DeviceScalar, Given
from .optimizer import Part, State


def next_steps(part: Part) -> Mapping[int | DeviceScalar, Sequence[int]]:
    """The numbers of this step, and which of the parameters are at each.

    Parameters at the same step share the number, which is on the device once.
    """
    done = [state.setdefault("step", 0) for state in part.states]
    if done.count(done[0]) == len(done):
        return {_next(done[0], part.given): range(len(done))}
    alike: dict[int | DeviceScalar, list[int]] = {}
    for index, steps in enumerate(done):
        alike.setdefault(steps, []).append(index)
    return {_next(steps, part.given): indices for steps, indices in alike.items()}


def count(states: Sequence[State], step: int | DeviceScalar) -> list[Change]:
    """What keeps the number of a step in the states of parameters."""
    return [each(dict.__setitem__, states, repeat("step"), repeat(step))]


def _next(done: int | DeviceScalar, given: Given) -> int | DeviceScalar:
    """The number of steps with this one, which does not count where it is skipped."""
    found = given.found_inf
    if isinstance(done, DeviceScalar):
        after = done.value + 1.0
    elif found is None:
        return int(done) + 1
    else:
        after = torch.full_like(found.value, int(done) + 1)
    return DeviceScalar(after if found is None else after - found.on(after.device))
