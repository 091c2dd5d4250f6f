"""Own shards: how a copy that shares memory differs from a second reference to one tensor.

A tensor that has shared its memory has it alone again when the others are gone, as after each step
the views of a parameter. Nothing reports that, so the references to the memory are counted.

A copy shares the memory of its original until one of the two is written. Views, detached
tensors and snapshots have the very tuple of shards of their tensor, and a graph takes them as one
variable; a copy has another tuple, and is another variable.
"""

from __future__ import annotations

import sys

import torch

from . import interpreter
from .meta import Meta
from .tensor import Shards, Tensor, from_shards


def own_tuple(shards: Shards) -> Shards:
    """The same shards in another tuple, outside of a graph's capture, where shards are values.

    >>> import onefold as flow
    >>> x = flow.ones(2)
    >>> own_tuple(x.shards) is x.shards, own_tuple(x.shards)[0] is x.shards[0]
    (False, True)
    """
    return shards if interpreter.capturing() else (*shards,)


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
    return len(x.shards) == 1 and _references(x) == _ALONE


def _references(x: Tensor) -> tuple[int, ...]:
    """Who refers to the shards, to the first of them, and to its memory; and if torch has that."""
    shards = x.shards
    part = shards[0]
    storage = part.untyped_storage()
    counts = map(sys.getrefcount, (shards, part, storage))
    return *counts, torch._C._storage_Use_Count(storage._cdata), storage.resizable()


# Counts include the names of the function itself, of which versions of Python count some or none.
_ALONE = _references(from_shards((torch.empty(1),), Meta.of((1,), torch.float32)))
