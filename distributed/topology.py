"""The numbers of this process and its machine, and the devices of ranks."""

from __future__ import annotations

import torch

from ..env import LOCAL_RANK, LOCAL_WORLD_SIZE
from .world import world


def get_rank() -> int:
    """This process's rank; 0 in a virtual world."""
    return world().rank or 0


def get_world_size() -> int:
    """Number of ranks; in a virtual world, as many as placements have named so far."""
    return world().size


def get_local_rank() -> int:
    """This process's number on its machine; 0 in a virtual world."""
    here = world()
    if not here.launched:
        return 0
    local = LOCAL_RANK.read()
    return get_rank() if local is None else local


def get_node_size() -> int:
    """Number of machines; 1 in a virtual world, and where the launcher did not say."""
    here = world()
    per_node = LOCAL_WORLD_SIZE.read()
    if not here.launched or per_node is None:
        return 1
    return -(-here.size // per_node)


def cuda_index(rank: int) -> int:
    """Index of the cuda device that `rank`, owned by this process, uses.

    Virtual: rank modulo the number of devices. Launched: LOCAL_RANK, modulo the same where more
    processes than devices share a machine.
    """
    number = get_local_rank() if world().launched else rank
    return number % max(torch.cuda.device_count(), 1)


def current_cuda_index() -> int:
    """Index of torch's current cuda device, which "cuda" means.

    In a launched process that is its own, also before it is connected to the others, which chooses
    the device: else all processes of a machine would put their first tensors on device 0. What the
    program has chosen itself counts.
    """
    here = world()
    index = torch.cuda.current_device()
    if index == 0 and here.rank is not None and here.joins and not here.connected:
        index = cuda_index(here.rank)
        torch.cuda.set_device(index)
    return index
