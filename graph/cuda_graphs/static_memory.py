"""Static memory: copies at fixed addresses of what a CUDA graph reads."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager

import torch

from ...engine.generator import Draw
from ...engine.tensor import Shards
from ...kernels.philox import signed
from ...kernels.staging import staged, to_device


def layout_of(shards: Shards) -> Hashable:
    """What must not change for `refill`: strides, devices, and which shards share a tensor."""
    first = {id(part): index for index, part in reversed([*enumerate(shards)])}
    return tuple([(part.stride(), part.device, first[id(part)]) for part in shards])


def static_copies(shards: Shards) -> Shards:
    """Memory for copies of the shards, with their strides; equal shards share one copy."""
    made = {id(part): _memory_like(part) for part in shards}
    return tuple([made[id(part)] for part in shards])


def _memory_like(x: torch.Tensor) -> torch.Tensor:
    overlaps = any(step == 0 and size > 1 for step, size in zip(x.stride(), x.shape, strict=True))
    strides = torch.empty(x.shape, device="meta").stride() if overlaps else x.stride()
    return torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device)


def refill(static: Shards, shards: Shards) -> None:
    """Copy the shards into static memory."""
    done: set[int] = set()
    for target, source in zip(static, shards, strict=True):
        if id(target) not in done:
            done.add(id(target))
            target.copy_(source, non_blocking=True)


def copies_of(shards: Shards) -> Shards:
    """Copies of the shards; equal shards share one copy."""
    made = {id(part): part.clone() for part in shards}
    return tuple([made[id(part)] for part in shards])


def on_device(shards: Shards, device: torch.device) -> Shards:
    """The shards on this device, copied there if they are elsewhere."""
    return tuple([to_device(part, device) for part in shards])


class DrawMemory:
    """The seeds and call ids of random draws, on the device.

    Each draw of a program has a row of its own, from which kernels read them.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self.table = torch.zeros(count, 2, dtype=torch.int64, device=device)
        self.rows = list(self.table)

    def set(self, numbers: Sequence[tuple[int, int]]) -> None:
        """Copy the numbers of this call, one pair for each row, without waiting."""
        host = torch.tensor([[signed(n) for n in pair] for pair in numbers], dtype=torch.int64)
        self.table.copy_(staged(host, self.table.device), non_blocking=True)


@contextmanager
def in_memory(draw: Draw, row: torch.Tensor) -> Iterator[None]:
    """The block in which kernels read the numbers of a draw from a row of a `DrawMemory`."""
    draw.memory = row
    try:
        yield
    finally:
        draw.memory = None
