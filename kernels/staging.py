"""Staging: small tables and numbers of the host on their way to a device."""

from __future__ import annotations

import torch
from torch import Tensor


def staged(host: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU in memory from which copies to the device wait for nothing.

    From pinned memory a copy is queued. From other memory CUDA may first wait for the stream.
    """
    return host.pin_memory() if device.type == "cuda" else host


def to_device(host: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on a device, for which nothing waits."""
    return staged(host, device).to(device, non_blocking=True)
