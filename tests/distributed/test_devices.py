"""Which GPU a process takes, and whether ranks communicate by NCCL; without a GPU here."""

from types import SimpleNamespace

import torch

from onefold.distributed import topology
from onefold.distributed.world import forget_world


class Gpus:
    """Stands for torch.cuda on a machine of some GPUs, of which process `rank` sees `seen`."""

    def __init__(self, monkeypatch, seen, known=True):
        self.current, self.synchronized = 0, 0
        fakes = {
            "is_available": lambda: bool(seen),
            "device_count": lambda: len(seen),
            "current_device": lambda: self.current,
            "set_device": lambda index: setattr(self, "current", index),
            "synchronize": lambda: setattr(self, "synchronized", self.synchronized + 1),
            "get_device_properties": lambda index: SimpleNamespace(
                pci_domain_id=0, pci_bus_id=seen[index] if known else None, pci_device_id=0,
                uuid=f"GPU-{seen[index]}",
            ),
        }  # fmt: skip
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)
        monkeypatch.delenv("ONEFOLD_DEVICE", raising=False)


def test_cuda_is_the_own_device_before_the_ranks_are_connected(monkeypatch):
    gpus = Gpus(monkeypatch, [1, 2, 3])
    for name, value in {"RANK": "4", "WORLD_SIZE": "6", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    forget_world()
    try:
        assert (topology.current_cuda_index(), gpus.current) == (1, 1)
        gpus.current = 2  # the program's choice
        assert topology.current_cuda_index() == 2
    finally:
        monkeypatch.undo()
        forget_world()
