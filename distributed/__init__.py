"""Processes and bytes: the world, collectives between processes, and the launcher.

Knows plain torch tensors only, nothing of placements or sbp.
"""

from .collectives import (
    all_gather as all_gather,
    all_reduce as all_reduce,
    barrier as barrier,
    broadcast as broadcast,
    exchange as exchange,
    gather_objects as gather_objects,
)
from .comm_log import CommLog as CommLog, CommRecord as CommRecord, comm as comm
from .point_to_point import transfer as transfer
from .topology import (
    cuda_index as cuda_index,
    get_local_rank as get_local_rank,
    get_node_size as get_node_size,
    get_rank as get_rank,
    get_world_size as get_world_size,
)
from .wait import current_op as current_op
from .world import (
    World as World,
    forget_world as forget_world,
    on_world_change as on_world_change,
    planned_world as planned_world,
    seen_from as seen_from,
    virtual_world as virtual_world,
    world as world,
)
