"""torch.types (`flow.types`): names for annotations, with tensors of Onefold."""

from builtins import bool as _bool, complex as _complex, float as _float, int as _int

from torch import Size, device as _device, dtype as _dtype, layout as _layout
from torch.types import Device, FileLike, Number, Storage, _size

from ..engine.tensor import Tensor

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
