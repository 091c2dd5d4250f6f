"""Updates of single tensors: wide arithmetic, and no write where the step is skipped."""

from __future__ import annotations

import torch


def wide(x: torch.Tensor) -> torch.Tensor:
    """The tensor in the dtype that updates are computed in: float32 for half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def gradient(grad: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """A wide gradient, times `scale`."""
    return wide(grad) if scale is None else wide(grad) * scale


def put(target: torch.Tensor, value: torch.Tensor, found_inf: torch.Tensor | None) -> None:
    """Write a value into a tensor, unless `found_inf`, a 0-d tensor on the device, is 1."""
    target.copy_(value if found_inf is None else torch.where(found_inf == 0, value, wide(target)))
