"""Loss scale: a number that a program reads at every run, and from which its backward starts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from ..engine.meta import Box, Meta
from ..engine.ops.creation import Maker
from ..engine.sbp import broadcast

Read = Callable[[torch.device, torch.dtype], torch.Tensor]


def scale_for(gradient: Meta, read: Read) -> tuple[Meta, Maker]:
    """The meta and the maker of the number that multiplies a gradient, on all its ranks."""
    meta = Meta.of((), gradient.dtype, device=gradient.device)
    if gradient.placement is not None:
        nd_sbp = (broadcast,) * gradient.placement.ndim
        meta = Meta.of((), gradient.dtype, gradient.placement, nd_sbp)
    return meta, partial(_number, read, gradient.dtype)


def _number(read: Read, dtype: torch.dtype, box: Box, device: torch.device) -> torch.Tensor:
    return read(device, dtype).clone()  # what is in a program may be written
