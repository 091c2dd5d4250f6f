"""Processes and bytes: the world, collectives between processes, and the launcher.

Knows plain torch tensors only, nothing of placements or sbp. Programs find the names of
torch.distributed here too; they stand above the engine and are imported when they are first named.
"""

from importlib import import_module
from typing import Any

from .collectives import exchange as exchange, gather_objects as gather_objects
from .comm_log import CommLog as CommLog, CommRecord as CommRecord, comm as comm
from .point_to_point import transfer as transfer
from .topology import (
    cuda_index as cuda_index,
    get_local_rank as get_local_rank,
    get_node_size as get_node_size,
)
from .torch_names import MISSING, MODULES, OFFERED
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

_ROOT = __name__.rpartition(".")[0]


def __getattr__(name: str) -> Any:
    if name in OFFERED:
        return getattr(import_module(f"{_ROOT}.{OFFERED[name]}"), name)
    if name in MODULES:
        return import_module(f"{__name__}.{name}")
    if name in MISSING:
        raise import_module(f"{_ROOT}.graph.unsupported").missing_attribute(MISSING, __name__, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *OFFERED, *MODULES})
