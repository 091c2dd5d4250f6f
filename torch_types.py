"""torch.types (`flow.types`): names for annotations, with tensors of Onefold."""

from torch.types import (
    Device,
    FileLike,
    Number,
    Size,
    Storage,
    _bool,
    _complex,
    _device,
    _dtype,
    _float,
    _int,
    _layout,
    _size,
)

from .engine.tensor import Tensor

__all__ = [
    "Device",
    "FileLike",
    "Number",
    "Size",
    "Storage",
    "Tensor",
    "_bool",
    "_complex",
    "_device",
    "_dtype",
    "_float",
    "_int",
    "_layout",
    "_size",
]

_TensorOrTensors = Tensor | tuple[Tensor, ...] | list[Tensor]
