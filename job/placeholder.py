"""Placeholder: the declared arguments of a job, in both generations, and how they are fed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from ..engine.meta import Box, Meta, slices_of
from ..engine.ops.creation import make
from ..engine.placement import Placement
from ..engine.sbp import Sbp, broadcast, split
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError
from .blob import WHOLE, Blob, Key, place_of

# One array; one for each device; for each device a list.
NUMPY, LIST, LIST_LIST = "Numpy", "ListNumpy", "ListListNumpy"


@dataclass(frozen=True)
class Placeholder:
    """An argument of a job: its kind, shape (of one array; in lists at most) and dtype."""

    kind: str
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    batch_axis: int | None = 0
    name: str | None = None

    def __post_init__(self) -> None:
        sizes: tuple[object, ...] = self.shape
        if not all(isinstance(n, int) and n >= 0 for n in sizes):
            raise OnefoldTypeError(
                f"{self.kind}.Placeholder needs a shape of integers, such as (100, 28), but got "
                f"{sizes!r}"
            )
        if self.dtype not in NUMPY_DTYPES:
            raise OnefoldTypeError(
                f"{self.kind}.Placeholder needs a dtype of numpy's, such as flow.float, but got "
                f"{self.dtype!r}"
            )
        if self.batch_axis is not None and not 0 <= self.batch_axis < max(len(sizes), 1):
            raise OnefoldValueError(
                f"batch_axis must be a dim of shape {sizes}, but got {self.batch_axis}"
            )

    def layout(self, devices: Placement) -> Sbp:
        """How the one array of the consistent view lies on the devices: by its batch, if it can."""
        axis = self.batch_axis
        if not self.shape or axis is None or self.shape[axis] < devices.num_ranks:
            return broadcast
        return split(axis)

    # What is fed.

    def arrays(self, value: object, who: str, devices: Placement) -> list[tuple[Key, np.ndarray]]:
        """The arrays in what a call gives, by part; lists of lists as further pieces.

        Raises OnefoldTypeError and OnefoldValueError for what was not declared.
        """
        if self.kind == NUMPY:
            return [(WHOLE, self._array(value, who, exact=True))]
        count = devices.num_ranks
        if not isinstance(value, (list, tuple)):
            raise OnefoldTypeError(
                f"{who} is declared as {self.kind}, so it needs a list with one array for each of "
                f"{count} devices, but got {type(value).__name__}"
            )
        if len(value) != count:
            raise OnefoldValueError(
                f"{who} needs a list of {count} arrays, one for each device, but got {len(value)}; "
                "the number of devices is that of flow.config.gpu_device_num"
            )
        if self.kind == LIST:
            return [
                ((i, None), self._array(x, f"{who}[{i}]", exact=False)) for i, x in enumerate(value)
            ]
        lengths = {len(x) if isinstance(x, (list, tuple)) else None for x in value}
        if len(lengths) != 1 or None in lengths or 0 in lengths:
            raise OnefoldValueError(
                f"{who} is declared as {self.kind}, so it needs for each device a list of arrays, "
                "all of one length, and at least one"
            )
        return [
            ((i, j), self._array(x, f"{who}[{i}][{j}]", exact=False))
            for i, inner in enumerate(value)
            for j, x in enumerate(inner)
        ]

    def _array(self, value: object, who: str, exact: bool) -> np.ndarray:
        if not isinstance(value, np.ndarray):
            raise OnefoldTypeError(f"{who} needs a numpy array, but got {type(value).__name__}")
        wanted = NUMPY_DTYPES[self.dtype]
        if value.dtype != wanted:
            raise OnefoldTypeError(
                f"{who} is declared with dtype {wanted}, but got an array of {value.dtype}; "
                f"convert it with .astype(numpy.{wanted})"
            )
        fits = value.shape == self.shape
        if not exact and len(value.shape) == len(self.shape):
            fits = all(n <= most for n, most in zip(value.shape, self.shape, strict=True))
        if not fits:
            limit = "" if exact else " at most"
            raise OnefoldValueError(
                f"{who} is declared with shape {self.shape}{limit}, but got {value.shape}"
            )
        return value

    def meta(self, key: Key, devices: Placement) -> Meta:
        """The layout of a part of the declared shape."""
        place = place_of(devices, key)
        return Meta.of(self.shape, self.dtype, place, (self._sbp(place),))

    def tensor(self, key: Key, array: np.ndarray, devices: Placement) -> Tensor:
        """A part as a tensor; every device takes its own part of the array."""
        place = place_of(devices, key)

        def maker(box: Box, device: torch.device) -> torch.Tensor:
            # A copy: the program may go on to change its array.
            return torch.from_numpy(np.array(array[slices_of(box)])).to(device)

        return make(
            "placeholder", array.shape, self.dtype, maker, placement=place, sbp=self._sbp(place)
        )

    def _sbp(self, place: Placement) -> Sbp:
        return self.layout(place) if self.kind == NUMPY else broadcast

    def keys(self, devices: Placement) -> list[Key]:
        """The parts of one argument of the declared kind."""
        if self.kind == NUMPY:
            return [WHOLE]
        return [(i, None if self.kind == LIST else 0) for i in range(devices.num_ranks)]

    def given(self, parts: Mapping[Key, Tensor]) -> Blob | list[Blob]:
        """The argument as the function sees it: a blob, or a list of them."""
        if self.kind != LIST_LIST:
            return Blob(parts, whole=True)
        positions = sorted({position or 0 for _, position in parts})
        return [
            Blob({(device, None): x for (device, at), x in parts.items() if at == position})
            for position in positions
        ]

    def named(self, name: str) -> Placeholder:
        """The placeholder, with this name if it has none."""
        return self if self.name else replace(self, name=name)


_DTYPES = "float16 float32 float64 int8 uint8 int16 int32 int64 bool".split()
NUMPY_DTYPES: dict[torch.dtype, np.dtype] = {getattr(torch, x): np.dtype(x) for x in _DTYPES}
