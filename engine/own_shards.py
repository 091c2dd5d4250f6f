"""Own shards: how a copy that shares memory differs from a second reference to one tensor.

A tensor that has shared its memory has it alone again when the others are gone, as after each step
the views of a parameter. Nothing reports that, so the references to the memory are counted.

A copy shares the memory of its original until one of the two is written. Views, detached
tensors and snapshots have the very tuple of shards of their tensor, and a graph takes them as one
variable; a copy has another tuple, and is another variable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getrefcount

import torch

from . import interpreter
from .meta import Meta
from .tensor import Shards, Tensor, from_shards


def own_tuple(shards: Shards) -> Shards:
    """The same shards in another tuple, except where values stand for them, as in captures.

    >>> import onefold as flow
    >>> x = flow.ones(2)
    >>> own_tuple(x.shards) is x.shards, own_tuple(x.shards)[0] is x.shards[0]
    (False, True)
    """
    if interpreter.capturing() or not isinstance(shards, tuple):  # a value, or a row of vmap
        return shards
    return (*shards,)


def is_sole_owner(x: Tensor) -> bool:
    """Whether nothing else refers to the memory of a tensor with one shard, which torch allocated.

    Memory that torch did not allocate, such as that of a numpy array, may have other owners.

    >>> import onefold as flow
    >>> x = flow.ones(2)
    >>> view = x[:1]
    >>> is_sole_owner(x)
    False
    >>> del view
    >>> is_sole_owner(x)
    True
    """
    return are_sole_owners((x,))


def are_sole_owners(tensors: Sequence[Tensor]) -> bool:
    """Whether nothing but these tensors refers to their memory, which is one; see `is_sole_owner`.

    >>> import onefold as flow
    >>> x = flow.ones(2)
    >>> view = x[:1]
    >>> are_sole_owners((x, view)), are_sole_owners((x,))
    (True, False)
    """
    return _references(tensors) == _ALONE


def _references(tensors: Sequence[Tensor]) -> tuple[float, ...]:
    """Who else refers to the shards, to their parts, and to the memory; and if torch has that.

    Each of these is referred to by a tensor at least once, so the mean of several is as much as
    that of one if and only if nothing else refers to any of them.
    """
    shards = {id(x.shards): x.shards for x in tensors}
    if {*map(len, shards.values())} != {1}:
        return ()
    parts = {id(own[0]): own[0] for own in shards.values()}
    of_shards = (sum(map(getrefcount, shards.values())) - len(tensors)) / len(shards)
    # torch's views refer to their base, too.
    uses = [*map(_use_count, parts.values())]
    own_uses = len(uses) + sum(map(torch.Tensor._is_view, parts.values()))
    held = _FROM_TORCH * sum(map((1).__lt__, uses))
    of_parts = (sum(map(getrefcount, parts.values())) - len(shards) - held) / len(parts)
    storages = [*map(torch.Tensor.untyped_storage, parts.values())]
    storage = storages[0]
    if len({each._cdata for each in storages}) > 1:
        return ()
    del storages
    of_memory = torch._C._storage_Use_Count(storage._cdata) - len(parts)
    of_storage = getrefcount(storage)
    return of_shards, of_parts, sum(uses) - own_uses, of_memory, of_storage, storage.resizable()


_use_count: Callable[[torch.Tensor], int] = vars(torch._C.TensorBase)["_use_count"]


def _references_from_torch() -> int:
    """How many references to a tensor in Python torch has, if it has any itself."""
    x = torch.empty(2)
    before = getrefcount(x)
    view = x[:1]
    return getrefcount(x) - before if view._is_view() else 0


_FROM_TORCH = _references_from_torch()
# Counts include the names of the function itself, of which versions of Python count some or none.
_ALONE = _references((from_shards((torch.empty(1),), Meta.of((1,), torch.float32)),))
