"""Memory of value zero that takes no space until something is written.

So models that fill a GPU run on a machine with less memory, since no kernel writes anything.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

LARGE = 2**20  # bytes, from which on memory is only reserved
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
_PAGES = Path("/proc/self/pagemap")  # 8 bytes for each page of this process
_AT_ONCE = 2**18  # pages whose bits are read
_IN_USE = 62  # the place of the two bits: in memory, or swapped out


def zeros(
    allocate: Callable[..., torch.Tensor], args: tuple[object, ...], kwargs: dict[str, object]
) -> torch.Tensor:
    """What a function of torch allocates, with the value zero.

    >>> zeros(torch.empty, (2,), {})
    tensor([0., 0.])
    """
    shown = allocate(*args, **{**kwargs, "device": "meta", "pin_memory": False})
    device: Any = kwargs.get("device") or getattr(args[0], "device", "cpu")
    size = shown.untyped_storage().nbytes()
    if torch.device(device).type != "cpu" or size < LARGE:
        made = allocate(*args, **kwargs)
        return made if made.is_meta else made.zero_()
    reserved = torch.frombuffer(mmap.mmap(-1, size, flags=_FLAGS), dtype=torch.uint8)
    made = torch.empty(0, dtype=shown.dtype)
    return made.set_(reserved.untyped_storage(), 0, shown.size(), shown.stride())


def is_blank(x: torch.Tensor) -> bool:
    """Whether a large tensor is zero, as its memory was never read or written.

    Or as it repeats a few numbers that are zero. False where the system does not tell.
    """
    storage = x.untyped_storage()
    if x.device.type != "cpu" or x.nbytes < LARGE:
        return False
    if storage.nbytes() < LARGE:
        return not torch.empty(0, dtype=torch.uint8).set_(storage).any()
    first = storage.data_ptr() // mmap.PAGESIZE
    count = -(-(storage.data_ptr() + storage.nbytes()) // mmap.PAGESIZE) - first
    try:
        with _PAGES.open("rb", buffering=0) as file:
            file.seek(8 * first)
            while count > 0:
                pages = np.frombuffer(file.read(8 * min(count, _AT_ONCE)), np.uint64)
                if not len(pages) or (pages >> np.uint64(_IN_USE)).any():
                    return False
                count -= len(pages)
    except OSError:
        return False
    return True
