"""Processes and bytes: the world, collectives between processes, and the launcher.

Knows plain torch tensors only, nothing of placements or sbp.
"""

from .collectives import (
    all_gather,
    all_reduce,
    barrier,
    broadcast,
    current_op,
    exchange,
    gather_objects,
    transfer,
)
from .comm_log import CommLog, CommRecord, comm
from .topology import cuda_index, get_local_rank, get_node_size, get_rank, get_world_size
from .world import World, forget_world, on_world_change, seen_from, virtual_world, world

__all__ = [
    "CommLog",
    "CommRecord",
    "World",
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "comm",
    "cuda_index",
    "current_op",
    "exchange",
    "forget_world",
    "gather_objects",
    "get_local_rank",
    "get_node_size",
    "get_rank",
    "get_world_size",
    "on_world_change",
    "seen_from",
    "transfer",
    "virtual_world",
    "world",
]
