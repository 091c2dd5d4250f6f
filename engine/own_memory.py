"""Writes into the memory of a tensor itself, as far as only its base and views share it.

In general an in-place method computes the new value of the whole tensor (`inplace`), which costs
a pass over a large tensor of which a row is written. Where no other tensor has the memory and the
tape keeps nothing of the call, torch writes the elements alone. What torch refuses is left to the
general way, whose errors tell more; torch checks before it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import torch

from ..kernels.host_memory import on_host
from . import interpreter
from .captures import shards_of
from .dispatch_plan import KERNEL_ERRORS, ops
from .meta import Meta
from .tensor import Tensor
from .view_memory import apart_from, is_recorded, note_changed, seen_by
from .view_places import unnoticed


def write_result(x: Tensor, name: str, args: Sequence[object], kwargs: dict[str, object]) -> bool:
    """Do the in-place form of the elementwise op `name` in the memory of `x`, if that is allowed.

    Example: `write_result(x, "lerp", (y, 0.1), {})` returns True where `x` has taken the result.
    """
    if name in _AS_ITEMS:
        as_item, count = _AS_ITEMS[name]
        found = as_item(x.meta, *args) if len(args) == count and not kwargs else None
        return found is not None and write_item(x, *found)
    method = _torch_method(name)
    if method is None or (kwargs and tuple(kwargs) != ("alpha",)):
        return False

    def write(memory: torch.Tensor) -> None:
        method(memory, *[_given(arg, x, memory) for arg in args], **kwargs)

    return _is_free(x, args) and _write(x, write)


Item: TypeAlias = tuple[object, object]  # an index and a value


def _along(dim: object, index: object) -> tuple[Any, ...] | None:
    """A vector as the index of a dim, which is counted from 0."""
    if not isinstance(dim, int) or dim < 0 or not isinstance(index, Tensor) or index.ndim != 1:
        return None
    return (*[slice(None)] * dim, index)


def _index_copy(x: Meta, dim: object, index: object, source: object) -> Item | None:
    place = _along(dim, index)
    if place is None or not isinstance(source, Tensor) or source.dtype != x.dtype:
        return None
    *whole, rows = place
    fits = source.shape == (*x.shape[: len(whole)], *rows.shape, *x.shape[len(place) :])
    return (place, source) if fits else None


def _index_fill(x: Meta, dim: object, index: object, value: object) -> Item | None:
    place = _along(dim, index)
    return None if place is None or isinstance(value, Tensor) else (place, value)


def _index_put(x: Meta, indices: object, values: object) -> Item | None:
    if not isinstance(values, Tensor) or values.dtype != x.dtype:
        return None
    if not isinstance(indices, tuple) or any(index is None for index in indices):
        return None
    return indices, values


# Methods that are assignments by another name where their arguments, so many, are simple.
_AS_ITEMS: dict[str, tuple[Callable[..., Item | None], int]] = {
    "index_copy": (_index_copy, 3),
    "index_fill": (_index_fill, 3),
    "index_put": (_index_put, 2),
}


def write_everywhere(x: Tensor, value: object) -> bool:
    """Fill the memory of `x` with a number, if that is allowed."""
    if not isinstance(value, (int, float)) or not _is_free(x, ()):
        return False
    return _write(x, lambda memory: memory.fill_(value), overwritten=True)


def write_item(x: Tensor, index: object, value: object) -> bool:
    """Do `x[index] = value` in the memory of `x`, if that is allowed."""
    if not isinstance(value, (Tensor, int, float)) or value is x or not _is_free(x, (value,)):
        return False
    place = _place(index, x.shards[0])
    if place is None:
        return False

    def write(memory: torch.Tensor) -> None:
        found = tuple([_given(item, x, memory) for item in place])
        memory.__setitem__(found, _given(value, x, memory))

    return _write(x, write, item=place)


def _given(arg: Any, x: Tensor, memory: torch.Tensor) -> Any:
    """An argument of a call as torch takes it, which does not change while `memory` is written."""
    if isinstance(arg, Tensor):
        arg = arg.shards[0]
    if x.shared and isinstance(arg, torch.Tensor):
        return apart_from(memory, arg)
    return arg


def _is_free(x: Tensor, others: Sequence[object]) -> bool:
    """Whether `x` is in the host's memory, and nothing records a call with these other arguments.

    On a GPU kernels of Triton make the new value.
    """
    meta = x.meta
    if meta.placement is not None or not meta.has_data or interpreter.get_current() is not None:
        return False
    if not on_host(shards_of(x)[0]):
        return False
    records = interpreter.is_grad_enabled()
    for other in others:
        if isinstance(other, Tensor):
            theirs = other.meta
            if theirs.device != meta.device or theirs.placement is not None:
                return False
            if records and other.node is not None:
                return False
        elif isinstance(other, torch.Tensor):
            return False
    return not records or not is_recorded(x)


def _write(
    x: Tensor,
    write: Callable[[torch.Tensor], object],
    overwritten: bool = False,
    item: tuple[Any, ...] | None = None,
) -> bool:
    """Let a function write into the memory of a local tensor, if no other tensor shares it.

    `item` is the index of the part that it writes, if it does not write all of the tensor.
    """
    changed = seen_by(x, overwritten)
    if changed is None:
        return False
    try:
        write(x.shards[0])
    except KERNEL_ERRORS:
        return False
    kept = unnoticed(changed, x, item) if len(changed) > 1 else ()
    note_changed([each for each in changed if id(each) not in kept] if kept else changed)
    return True


@lru_cache(maxsize=512)
def _torch_method(name: str) -> Callable[..., object] | None:
    """The in-place method of torch for an op of which torch's function is the kernel here."""
    function = getattr(torch, name, None)
    found = [op for op in ops.get(name, ()) if op.kernel is function and not op.makes_views]
    method: Callable[..., object] | None = getattr(torch.Tensor, f"{name}_", None)
    return method if found else None


def _place(index: object, memory: torch.Tensor) -> tuple[Any, ...] | None:
    """An index as torch takes it; None for what is read otherwise here, or may be out of range.

    torch looks at index tensors while it writes, so these are checked before.
    """
    found: list[Any] = []
    dim = 0
    items = index if type(index) is tuple else (index,)
    for place, item in enumerate(items):
        if type(item) in (int, slice):
            found.append(item)
            dim += 1
        elif item is None:
            found.append(item)
        elif item is Ellipsis:  # what follows is counted from the last dim
            if any(other is Ellipsis for other in found):
                return None
            found.append(item)
            dim = memory.ndim - sum([_width(other) for other in items[place + 1 :]])
        else:
            part = _index_tensor(item)
            if part is None or not on_host(part) or not _in_range(part, memory, dim):
                return None
            found.append(part)
            dim += _width(part)
    return tuple(found)


def _index_tensor(item: object) -> torch.Tensor | None:
    """A local tensor, or a list of ints or of bools, as torch's tensor; None for other items."""
    if isinstance(item, Tensor):
        return item.shards[0] if item.is_local and item.meta.has_data else None
    if type(item) is list and item:
        kind = type(item[0])
        if kind in (int, bool) and all(type(other) is kind for other in item):
            return torch.tensor(item)
    return None


def _width(item: object) -> int:
    """How many dims an item of an index takes."""
    if isinstance(item, (Tensor, torch.Tensor)) and item.dtype is torch.bool:
        return max(item.ndim, 1)
    return 0 if item is None else 1


def _in_range(index: torch.Tensor, memory: torch.Tensor, dim: int) -> bool:
    """Whether torch writes at an index tensor of dim `dim` without an error."""
    if index.dtype is torch.bool:
        return index.ndim > 0 and dim >= 0 and index.shape == memory.shape[dim : dim + index.ndim]
    if index.dtype is not torch.int64 or not 0 <= dim < memory.ndim:
        return False
    if not index.numel():
        return True
    least, most = map(int, torch.aminmax(index))
    return -memory.shape[dim] <= least and most < memory.shape[dim]
