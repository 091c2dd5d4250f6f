"""Process groups that their members make alone, under a name that they agree on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d


def group_named(
    name: str, ordered: tuple[int, ...], limit: timedelta, backend: str | None = None
) -> dist.ProcessGroup:
    """`dist.new_group` among its members alone, under a name that they agree on.

    torch (2.13) puts the number of groups that the process made so far into the name of such a
    group. Members that were in different numbers of groups would wait for each other under
    different names, so for this call the name is made here. And a group of a program that gave
    `init_process_group` a device would be split from that of all ranks, which needs them all.
    """
    whole = dist.group.WORLD
    assert whole is not None
    makes_name, bound = c10d._hash_ranks_to_str, whole.bound_device_id
    c10d._hash_ranks_to_str = lambda ranks: name
    whole.bound_device_id = None
    try:
        handle: dist.ProcessGroup = dist.new_group(
            list(ordered), limit, backend, use_local_synchronization=True
        )
    finally:
        c10d._hash_ranks_to_str = makes_name
        whole.bound_device_id = bound
    shake_hands(handle)
    return handle


def give_time(handle: dist.ProcessGroup | None, limit: timedelta) -> None:
    """Let NCCL wait so long: its own watchdog aborts without a report, so ours must come first."""
    group = dist.group.WORLD if handle is None else handle
    assert group is not None
    backend: Any = group._get_backend(torch.device("cuda"))
    while hasattr(backend, "wrapped_pg"):  # by TORCH_DISTRIBUTED_DEBUG=DETAIL
        backend = backend.wrapped_pg
    backend._set_default_timeout(limit)


def shake_hands(handle: dist.ProcessGroup | None) -> None:
    """Return when all members have finished connecting; else one could leave while another does."""
    dist.all_reduce(torch.zeros(1, dtype=torch.int32, device="cpu"), group=handle)
