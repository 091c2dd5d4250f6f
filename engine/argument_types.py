"""Types of the arguments that many public functions take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypedDict

import numpy as np
import torch

from .placed_device import PlacedDevice
from .placement import Placement
from .sbp import SbpLike

Number: TypeAlias = bool | int | float | complex
NumberLike: TypeAlias = Number | np.number[Any]
Dims: TypeAlias = int | Sequence[int]
Sizes: TypeAlias = int | Sequence[int]  # of each dim of a window: one for all, or one per dim
DeviceLike: TypeAlias = str | int | torch.device | PlacedDevice


class Layout(TypedDict, total=False):
    """Where a new tensor is created, as keywords: `def zeros_like(x, **layout: Unpack[Layout])`."""

    device: DeviceLike | None
    placement: Placement | None
    sbp: SbpLike | None
    requires_grad: bool


class TypedLayout(Layout, total=False):
    """The same with the dtype (None: the function's default)."""

    dtype: torch.dtype | None


class SizedLayout(TypedLayout, total=False):
    """The same for functions that take sizes one by one or as the keyword `size`."""

    size: Dims
