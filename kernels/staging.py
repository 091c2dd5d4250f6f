"""Staging: small tables and numbers of the host on their way to a device."""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(host: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on a device, for which nothing waits.

    From pinned memory the copy is queued. From other memory CUDA may first wait for the stream.
    """
    if device.type == "cuda":
        host = host.pin_memory()
    return host.to(device, non_blocking=True)
