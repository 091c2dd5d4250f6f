"""Numbers of steps: which parameters are at which, and the next that each of them keeps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import torch

from ..engine.commit import Write, each
from .device_scalar import DeviceScalar, Given
from .optimizer import Part, State


def next_steps(part: Part) -> dict[int | DeviceScalar, list[int]]:
    """The numbers of this step, and which of the parameters are at each.

    Parameters at the same step share the number, which is on the device once.
    """
    alike: dict[int | DeviceScalar, list[int]] = {}
    for index, state in enumerate(part.states):
        alike.setdefault(state.setdefault("step", 0), []).append(index)
    return {_next(done, part.given): indices for done, indices in alike.items()}


def count(states: Sequence[State], step: int | DeviceScalar) -> Write:
    """Keep the number of a step in the states of parameters."""
    return lambda: [each(dict.__setitem__, states, repeat("step"), repeat(step))]


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
