"""The names of `flow.env`: rank and world size of this process, placements of all devices."""

from __future__ import annotations

from ..distributed.topology import get_local_rank, get_node_size, get_rank, get_world_size
from ..distributed.world import world
from ..env import describe
from .placement import Placement

__all__ = [
    "all_device_placement",
    "describe",
    "get_local_rank",
    "get_node_size",
    "get_rank",
    "get_world_size",
    "is_launched",
]

all_device_placement = Placement.all


def is_launched() -> bool:
    """Whether a launcher started this process, so that it owns one rank of several processes.

    >>> is_launched()
    False
    """
    return world().launched
