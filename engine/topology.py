"""What `flow.env` offers: this process's rank, the world's size, placements of all devices."""

from __future__ import annotations

from ..distributed.topology import get_local_rank as get_local_rank
from ..distributed.topology import get_node_size as get_node_size
from ..distributed.topology import get_rank as get_rank
from ..distributed.topology import get_world_size as get_world_size
from ..distributed.world import world
from ..env import describe as describe
from .placement import Placement


def is_launched() -> bool:
    """Whether a launcher started this process, so that it owns one rank of several processes.

    >>> is_launched()
    False
    """
    return world().launched


def all_device_placement(type: str) -> Placement:
    """All ranks of the job as a one-axis mesh."""
    return Placement.all(type)
