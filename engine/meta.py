"""Meta: shape, dtype, placement and nd_sbp of a tensor, and the box of each rank's shard."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from threading import RLock
from typing import TypeAlias
from weakref import WeakValueDictionary

import torch

from ..errors import SbpError
from .placement import Placement
from .sbp import NdSbp, Sbp, short

Shape: TypeAlias = tuple[int, ...]
Box: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]  # (offset, size), per tensor dim


def slices_of(box: Box) -> tuple[slice, ...]:
    """The index that selects a box of the logical tensor."""
    return tuple(slice(start, start + size) for start, size in zip(*box, strict=True))


def balanced(size: int, parts: int, index: int) -> tuple[int, int]:
    """(offset, size) of part `index` of `size` split into `parts`; the first ones get one more.

    >>> [balanced(7, 3, i) for i in range(3)]
    [(0, 3), (3, 2), (5, 2)]
    """
    small, more = divmod(size, parts)
    return index * small + min(index, more), small + (index < more)


@dataclass(slots=True, init=False, eq=False, weakref_slot=True)
class Meta:
    """Shape, dtype, placement and nd_sbp of a tensor; a local tensor has a device instead.

    Immutable and interned by `Meta.of`: equal metas are one object, compared and hashed by
    identity. Every question about any rank's shard is answered by arithmetic alone.
    """

    shape: torch.Size
    dtype: torch.dtype
    placement: Placement | None
    nd_sbp: NdSbp
    device: torch.device | None
    partial: bool  # on some axis
    shardwise: bool  # one floating, nowhere partial shard here: arithmetic on it keeps the meta
    has_data: bool  # not on torch's "meta" device, nor of a cluster that is only planned
    _boxes: dict[int, Box]

    @staticmethod
    def of(
        shape: Sequence[int],
        dtype: torch.dtype,
        placement: Placement | None = None,
        nd_sbp: NdSbp = (),
        device: torch.device | None = None,
    ) -> Meta:
        """The one Meta with these fields (`device` for local tensors, else placement and nd_sbp).

        >>> Meta.of((4, 5), torch.float32, device=torch.device("cpu")).nbytes
        80
        """
        key = (tuple(shape), dtype, placement, nd_sbp, device)
        found = _interned.get(key)
        if found is not None:
            return found
        made = object.__new__(Meta)
        made.shape = torch.Size(shape)
        made.dtype = dtype
        made.placement = placement
        made.nd_sbp = nd_sbp
        made.device = device
        made.partial = any(s.is_partial for s in nd_sbp)
        made.shardwise = (
            dtype.is_floating_point
            and not made.partial
            and (placement is None or len(placement.owned) == 1)
        )
        if placement is None:
            made.has_data = device is None or device.type != "meta"
        else:
            made.has_data = not placement.planned
        made._boxes = {}
        with _interning:  # another thread may have made the same
            return _interned.setdefault(key, made)

    def like(
        self,
        shape: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        nd_sbp: NdSbp | None = None,
    ) -> Meta:
        """The same meta with some fields replaced."""
        return Meta.of(
            self.shape if shape is None else shape,
            dtype or self.dtype,
            self.placement,
            self.nd_sbp if nd_sbp is None else nd_sbp,
            self.device,
        )

    def box(self, position: int) -> Box:
        """(offset, size) of the shard at `position` of the flattened mesh, in logical indices.

        Nested splits nest axis by axis: 6 over a [2, 2] mesh as (S0, S0) is 2, 1, 2, 1.
        """
        found = self._boxes.get(position)
        if found is None:
            found = self._boxes[position] = self._compute_box(position)
        return found

    def _compute_box(self, position: int) -> Box:
        assert self.placement is not None
        offset, size = [0] * len(self.shape), list(self.shape)
        coordinate = self.placement.coordinate(position)
        for sbp, parts, index in zip(self.nd_sbp, self.placement.shape, coordinate, strict=True):
            if sbp.kind == "S":
                start, size[sbp.dim] = balanced(size[sbp.dim], parts, index)
                offset[sbp.dim] += start
        return tuple(offset), tuple(size)

    def local_shape(self, position: int) -> tuple[int, ...]:
        return self.shape if self.placement is None else self.box(position)[1]

    def local_offset(self, position: int) -> tuple[int, ...]:
        return (0,) * len(self.shape) if self.placement is None else self.box(position)[0]

    @property
    def meta(self) -> Meta:
        """Itself: gradients get a meta for an input that was not saved, and ask either for it."""
        return self

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole logical tensor."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def device_type(self) -> str:
        """The type of the devices that hold the tensor, such as "cpu"."""
        if self.placement is not None:
            return self.placement.device_type
        return "cpu" if self.device is None else self.device.type

    @property
    def global_placement(self) -> Placement:
        """The placement of a meta that is known to be global."""
        assert self.placement is not None
        return self.placement

    @property
    def is_global(self) -> bool:
        return self.placement is not None

    @property
    def is_whole(self) -> bool:
        """True when every member holds the whole logical value."""
        return all(sbp.kind == "B" for sbp in self.nd_sbp)

    @property
    def is_floating(self) -> bool:
        return self.dtype.is_floating_point or self.dtype.is_complex

    def __repr__(self) -> str:
        dims = ", ".join(map(str, self.shape))
        kind = str(self.dtype).removeprefix("torch.")
        if self.placement is None:
            return f"{kind}[{dims}] on {self.device}"
        return f"{kind}[{dims}] {short(self.nd_sbp)} on {self.placement!r}"


_interned: WeakValueDictionary[tuple[object, ...], Meta] = WeakValueDictionary()
# Reentrant, since the collector may run the code of a program while it is held.
_interning = RLock()
if hasattr(os, "register_at_fork"):
    # A child has no thread that would release what another thread of its parent held.
    os.register_at_fork(
        before=_interning.acquire,
        after_in_parent=_interning.release,
        after_in_child=_interning.release,
    )


def blank_shards(meta: Meta) -> tuple[torch.Tensor, ...]:
    """The shards of this process as tensors without data, on torch's "meta" device.

    >>> blank_shards(Meta.of((4, 5), torch.float32, device=torch.device("meta")))
    (tensor(..., device='meta', size=(4, 5)),)
    """
    owned = (0,) if meta.placement is None else meta.placement.owned
    return tuple(
        [torch.empty(meta.local_shape(at), dtype=meta.dtype, device="meta") for at in owned]
    )


def check_nd_sbp(shape: Sequence[int], nd_sbp: Sequence[Sbp]) -> None:
    """Raise SbpError when a split dim is not a dim of the tensor."""
    for sbp in nd_sbp:
        if sbp.kind == "S" and sbp.dim >= len(shape):
            raise SbpError(
                f"sbp.split(dim={sbp.dim}) needs a tensor with more than {sbp.dim} dims, but the "
                f"shape is {tuple(shape)} ({len(shape)} dims); "
                + (f"allowed are dims 0 to {len(shape) - 1}" if shape else "use broadcast")
            )
