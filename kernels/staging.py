"""Staging: small tables and numbers of the host on their way to a device."""

from __future__ import annotations

import torch
from torch import Tensor


def staged(x: Tensor, device: torch.device) -> Tensor:
    """A tensor in memory from which a copy to the device is queued.

    From memory of the host that is not pinned CUDA may first wait for the stream.
    """
    return x.pin_memory() if device.type == "cuda" and x.device.type == "cpu" else x


def to_device(x: Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor on a device, in a dtype if one is given; nothing waits for it."""
    return staged(x, device).to(device, dtype, non_blocking=True)
