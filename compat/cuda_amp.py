"""Mixed precision on CUDA devices under torch's old path (`flow.cuda.amp`); see `flow.amp`."""

from __future__ import annotations

import sys
from typing import Any

import torch

from ..engine import autocast as _autocast
from ..optim.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

__path__: list[str] = []  # import_paths.py leads to what is below it

autocast_mode = grad_scaler = sys.modules[__name__]  # torch's modules of these names


class autocast(_autocast.autocast):
    """`flow.autocast("cuda", ...)`, with the arguments in torch's order.

    >>> with autocast(dtype=torch.bfloat16):
    ...     flow.get_autocast_dtype("cuda")
    torch.bfloat16
    """

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype = torch.float16,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


def custom_fwd(fwd: Any = None, *, cast_inputs: torch.dtype | None = None) -> Any:
    """`flow.amp.custom_fwd` for CUDA devices."""
    return _autocast.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Any = None) -> Any:
    """`flow.amp.custom_bwd` for CUDA devices."""
    return _autocast.custom_bwd(bwd, device_type="cuda")
