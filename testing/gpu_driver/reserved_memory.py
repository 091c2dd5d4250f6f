"""Memory of value zero that takes no space until something is written.

So models that fill a GPU run on a machine with less memory, since no kernel writes anything.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import torch

LARGE = 2**20  # bytes, from which on memory is only reserved
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
_PAGES = Path("/proc/self/pagemap")  # 8 bytes for each page of this process
_IN_USE = 62  # the place of the two bits: in memory, or swapped out


def zero(x: torch.Tensor) -> None:
    """Give a tensor that was just allocated the value zero."""
    size = x.untyped_storage().nbytes()
    if size < LARGE:
        x.zero_()
        return
    reserved = torch.frombuffer(mmap.mmap(-1, size, flags=_FLAGS), dtype=torch.uint8)
    x.set_(reserved.untyped_storage(), 0, x.size(), x.stride())


def is_untouched(x: torch.Tensor) -> bool:
    """Whether a large tensor's memory was never read or written, so that its value is zero.

    False where the system does not tell.
    """
    storage = x.untyped_storage()
    if x.device.type != "cpu" or storage.nbytes() < LARGE:
        return False
    first = storage.data_ptr() // mmap.PAGESIZE
    count = -(-(storage.data_ptr() + storage.nbytes()) // mmap.PAGESIZE) - first
    try:
        with _PAGES.open("rb", buffering=0) as file:
            file.seek(8 * first)
            pages = np.frombuffer(file.read(8 * count), np.uint64)
    except OSError:
        return False
    return len(pages) == count and not (pages >> np.uint64(_IN_USE)).any()
