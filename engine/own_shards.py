"""Own shards: how a copy that shares memory differs from a second reference to one tensor.

A copy shares the memory of its original until one of the two is written. Views, detached
tensors and snapshots have the very tuple of shards of their tensor, and a graph takes them as one
variable; a copy has another tuple, and is another variable.
"""

from __future__ import annotations

from . import interpreter
from .tensor import Shards


def own_tuple(shards: Shards) -> Shards:
    """The same shards in another tuple, outside of a graph's capture, where shards are values.

    >>> import onefold as flow
    >>> x = flow.ones(2)
    >>> own_tuple(x.shards) is x.shards, own_tuple(x.shards)[0] is x.shards[0]
    (False, True)
    """
    return shards if interpreter.capturing() else (*shards,)
