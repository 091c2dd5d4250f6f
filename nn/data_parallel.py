"""DataParallel: torch's wrapper, which has nothing to do here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .module import Module


class DataParallel(Module):
    """Calls `module` unchanged; a program becomes data parallel by its layouts.

    Put the parameters on a placement of several ranks with `module.to_global(placement,
    flow.sbp.broadcast)` and split the inputs by `flow.sbp.split(0)`: each rank then computes its
    part of the batch, and gradients are reduced where they are needed. The wrapper has torch's
    attribute `module` and keys of state dicts; `device_ids`, `output_device` and `dim` are kept
    and not used.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[int | torch.device] | None = None,
        output_device: int | torch.device | None = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        self.module = module
        self.device_ids = list(device_ids or [])
        self.output_device = output_device
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)
