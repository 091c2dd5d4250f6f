"""State layouts: the state of an optimizer is laid out as the parameters are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..engine.convert import box
from ..engine.inplace import formatted_as, writable
from ..engine.tensor import Tensor, from_shards
from ..kernels.memory_format_ref import CHANNELS_LAST, dense_copy


def lay_states(params: Sequence[Tensor], states: Sequence[dict[str, Any]]) -> None:
    """Lay the state out as the parameters are, whose layouts may have changed since.

    That includes the memory format: updates go through the elements in the order in memory.
    """
    for param, state in zip(params, states, strict=True):
        if param.meta.placement is not None:
            for key, value in state.items():
                if isinstance(value, Tensor) and value.meta is not param.meta:
                    state[key] = _laid_as(value, param)
        if len(param.meta.shape) in CHANNELS_LAST and param.shards:
            _format_as(param, state)
        if len(param.shards) > 1:
            _match_replicas(param, state.values())


def _format_as(param: Tensor, state: dict[str, Any]) -> None:
    """Bring the tensors of the state into the memory format of the parameter."""
    plain = param.shards[0].is_contiguous()  # or else channels-last
    for key, value in state.items():
        if type(value) is not Tensor or value.shards[0].is_contiguous() is plain:
            continue
        if value.meta.shape == param.meta.shape:  # not what is kept of rows and columns
            state[key] = _own(formatted_as(value, param))


def _laid_as(value: Tensor, param: Tensor) -> Tensor:
    """A tensor of the state in the parameter's layout, unless it is of another shape."""
    target = param.meta.like(dtype=value.dtype)
    if value.shape != param.shape or value.meta is target:
        return value
    moved = formatted_as(from_shards(box(value, target).shards, target), param)
    moved.shared = True  # perhaps a view, which would keep all of the old memory
    return _own(moved)


def _own(value: Tensor) -> Tensor:
    """The value in memory of its own."""
    writable(value)
    return value


def _match_replicas(param: Tensor, state: Iterable[object]) -> None:
    """Let state be one tensor exactly where the parameter is, since both are updated together.

    In a virtual world replicas may be one tensor or several, depending on how they were made.
    """
    wanted = _firsts(param)
    for value in state:
        if isinstance(value, Tensor) and value.shape == param.shape and _firsts(value) != wanted:
            made = {i: dense_copy(value.shards[i]) for i in set(wanted)}
            value.shards = tuple([made[i] for i in wanted])


def _firsts(tensor: Tensor) -> list[int]:
    """For each shard, the number of the first that is the same tensor."""
    found: dict[int, int] = {}
    return [found.setdefault(id(part), index) for index, part in enumerate(tensor.shards)]
