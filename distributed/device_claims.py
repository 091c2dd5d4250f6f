"""Device claims: each process says which GPU it has, so that all choose one back end.

NCCL takes ranks only if each has a GPU of its own, and all must choose alike: what one process sees
of its machine, such as how many GPUs are visible to it, says little about the others.
"""

from __future__ import annotations

import torch
from torch._C._distributed_c10d import Store

VERDICT = "devices/verdict"
_CLAIMED_FROM = 32  # the bits below count ranks, those above the ranks with a GPU of their own


def address(index: int) -> str:
    """A name that no other GPU has: the boot id of the machine, and the place on its bus.

    Instances of one GPU (MIG) share it: NCCL does not take them, either.
    """
    properties = torch.cuda.get_device_properties(index)
    names = "pci_domain_id", "pci_bus_id", "pci_device_id"
    place = [getattr(properties, name, None) for name in names]
    with open("/proc/sys/kernel/random/boot_id") as file:
        machine = file.read().strip()
    return f"{machine} {getattr(properties, 'uuid', '') if None in place else place}"


def claim(store: Store, ranks: int, device: str) -> None:
    """Claim the GPU of this process for all to see; `device` is empty if it has none.

    The last rank to do so sets the key VERDICT.
    """
    alone = bool(device) and store.add(f"devices/{device}", 1) == 1
    total = store.add("devices/claims", (int(alone) << _CLAIMED_FROM) + 1)
    if total % (1 << _CLAIMED_FROM) == ranks:
        store.set(VERDICT, str(total >> _CLAIMED_FROM == ranks))


def each_has_one(store: Store) -> bool:
    """Whether each rank has a GPU of its own. Waits for the VERDICT."""
    return store.get(VERDICT) == b"True"
