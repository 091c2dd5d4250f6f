"""State layouts: the state of an optimizer is laid out as the parameters are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..engine.convert import box
from ..engine.inplace import writable
from ..engine.tensor import Tensor, from_shards


def lay_states(params: Sequence[Tensor], states: Sequence[dict[str, Any]]) -> None:
    """Lay the state out as the parameters are, whose layouts may have changed since."""
    for param, state in zip(params, states, strict=True):
        if param.meta.placement is None:
            continue
        for key, value in state.items():
            if isinstance(value, Tensor) and value.meta is not param.meta:
                state[key] = _laid_as(value, param)
        if len(param.shards) > 1:
            _match_replicas(param, state.values())


def _laid_as(value: Tensor, param: Tensor) -> Tensor:
    """A tensor of the state in the parameter's layout, unless it is of another shape."""
    target = param.meta.like(dtype=value.dtype)
    if value.shape != param.shape or value.meta is target:
        return value
    moved = from_shards(box(value, target).shards, target)
    moved.shared = True  # perhaps a view, which would keep all of the old memory
    writable(moved)
    return moved


def _match_replicas(param: Tensor, state: Iterable[object]) -> None:
    """Let state be one tensor exactly where the parameter is, since both are updated together.

    In a virtual world replicas may be one tensor or several, depending on how they were made.
    """
    wanted = _firsts(param)
    for value in state:
        if isinstance(value, Tensor) and value.shape == param.shape and _firsts(value) != wanted:
            form = torch.contiguous_format
            made = {i: value.shards[i].clone(memory_format=form) for i in set(wanted)}
            value.shards = tuple([made[i] for i in wanted])


def _firsts(tensor: Tensor) -> list[int]:
    """For each shard, the number of the first that is the same tensor."""
    found: dict[int, int] = {}
    return [found.setdefault(id(part), index) for index, part in enumerate(tensor.shards)]
