"""Updates of single tensors: wide arithmetic, and no write where the step is skipped."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch


def wide(x: torch.Tensor) -> torch.Tensor:
    """The tensor in the dtype that updates are computed in: float32 for half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def gradient(grad: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """A wide gradient, times `scale`."""
    return wide(grad) if scale is None else wide(grad) * scale


def putting(
    target: torch.Tensor, value: torch.Tensor, found_inf: torch.Tensor | None
) -> Callable[[], torch.Tensor]:
    """What writes a value into a tensor, unless `found_inf`, a 0-d tensor on the device, is 1."""
    if found_inf is not None:
        value = torch.where(found_inf == 0, value, wide(target))
    return partial(target.copy_, value)
