"""Placement: a device type and an n-d array (mesh) of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol, TypeAlias, overload
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch

from ..distributed.topology import cuda_index
from ..distributed.world import World, world
from ..env import DEVICE
from ..errors import PlacementError

_DEVICE_TYPES = ("cpu", "cuda")
_EXAMPLE = 'write for instance placement("cpu", ranks=[0, 1])'
_interned: WeakKeyDictionary[World, dict[tuple[object, ...], Placement]] = WeakKeyDictionary()


Ranks: TypeAlias = "Sequence[int | Ranks]"


class SupportsArray(Protocol):
    """An object that numpy reads as an array, such as a tensor."""

    def __array__(self) -> np.ndarray: ...


@dataclass(slots=True, init=False, eq=False, weakref_slot=True)
class Placement:
    """The ranks that hold a tensor, arranged as an n-d mesh in exactly the given order.

    `type` is "cpu" or "cuda"; `ranks` any nesting of lists (or an array) of distinct ranks.
    Equal placements are one object. Raises PlacementError where one of the two is
    missing, for an unknown type, duplicate or negative ranks, and ranks that a launched world does
    not have.

    >>> Placement("cpu", [[0, 1], [2, 3]]).shape
    (2, 2)
    """

    device_type: str
    shape: tuple[int, ...]  # of the mesh
    flat_ranks: tuple[int, ...]  # in row-major mesh order
    members: frozenset[int]  # the same without an order
    position: dict[int, int]  # rank -> index in flat_ranks
    strides: tuple[int, ...]  # of a row-major mesh of this shape
    owned: tuple[int, ...]  # positions whose rank this process owns
    planned: bool  # whether no rank holds data: it was made inside `flow.planning()`

    @overload
    def __new__(cls, type: str, ranks: Ranks) -> Placement: ...

    @overload
    def __new__(cls, type: str, ranks: SupportsArray) -> Placement: ...

    # Neither has a default; what is missing is None here for an error that says what to write.
    def __new__(cls, type: object = None, ranks: object = None) -> Placement:
        if type is None or ranks is None:
            raise PlacementError(
                "placement needs a device type and ranks, but got "
                f"type={type!r} and ranks={ranks!r}; {_EXAMPLE}"
            )
        device_type = _read_type(type)
        mesh = _read_ranks(ranks)
        flat = tuple(int(rank) for rank in mesh.reshape(-1))
        here = world()
        table = _interned.setdefault(here, {})
        key = (device_type, mesh.shape, flat)
        found = table.get(key)
        if found is None:
            here.ensure(flat)
            found = object.__new__(cls)
            found.device_type, found.shape, found.flat_ranks = key
            found.owned = here.owned(flat)
            found.planned = here.planned
            found.members = frozenset(flat)
            found.position = {rank: index for index, rank in enumerate(flat)}
            found.strides = tuple([prod(mesh.shape[axis + 1 :]) for axis in range(mesh.ndim)])
            found = table.setdefault(key, found)  # another thread may have made the same
        return found

    @staticmethod
    def all(type: str) -> Placement:
        """All ranks of the job as a one-axis mesh."""
        return Placement(type, list(range(world().size)))

    @property
    def type(self) -> str:
        return self.device_type

    @property
    def ranks(self) -> npt.NDArray[np.int64]:
        """The mesh as a numpy array of ranks."""
        return np.array(self.flat_ranks, dtype=np.int64).reshape(self.shape)

    @property
    def ndim(self) -> int:
        """Number of axes of the mesh."""
        return len(self.shape)

    @property
    def num_ranks(self) -> int:
        return len(self.flat_ranks)

    def coordinate(self, position: int) -> tuple[int, ...]:
        """The mesh coordinate of the member at `position` of the flattened mesh."""
        return tuple(
            position // stride % size for stride, size in zip(self.strides, self.shape, strict=True)
        )

    def group(self, position: int, axes: Sequence[int]) -> tuple[int, ...]:
        """Positions that differ from `position` only along `axes`, in row-major order of them."""
        base = position
        members = [0]
        for axis in axes:
            stride, size = self.strides[axis], self.shape[axis]
            base -= position // stride % size * stride
            members = [m + index * stride for m in members for index in range(size)]
        return tuple(base + m for m in members)

    def device(self, rank: int) -> torch.device:
        """The torch device on which `rank` keeps its shard; torch's "meta" while planning."""
        if self.planned:
            return torch.device("meta")
        if self.device_type == "cpu":
            return torch.device("cpu")
        return torch.device("cuda", cuda_index(rank))

    def __repr__(self) -> str:
        if not hasattr(self, "strides"):  # made by object.__new__, or an error interrupted it
            return "<onefold.placement that was not initialized>"
        return f'onefold.placement(type="{self.device_type}", ranks={self.ranks.tolist()})'

    def __reduce__(self) -> tuple[object, ...]:
        return Placement, (self.device_type, self.ranks.tolist())


def _read_type(type: object) -> str:
    if type not in _DEVICE_TYPES:
        raise PlacementError(
            f"placement type must be one of {', '.join(map(repr, _DEVICE_TYPES))}, but got "
            f"{type!r}; {_EXAMPLE}"
        )
    if type == "cuda":
        if world().planned:  # a cluster that may be elsewhere
            return "cuda"
        if DEVICE.read() == "cpu":
            return "cpu"
        if not torch.cuda.is_available():
            raise PlacementError(
                'placement(type="cuda"): this machine has no CUDA device that torch can use. '
                'Set ONEFOLD_DEVICE=cpu to read every "cuda" as "cpu", or use type="cpu".'
            )
    return str(type)


def _read_ranks(ranks: object) -> npt.NDArray[np.int64]:
    try:
        mesh = np.array(ranks)
    except ValueError:
        mesh = np.array(None)
    if mesh.dtype.kind not in "iu" or mesh.ndim == 0:
        raise PlacementError(
            "placement ranks must be a non-empty list of integers, or equally long nested lists "
            f"of them, but got {ranks!r}; {_EXAMPLE}"
        )
    flat = mesh.reshape(-1).tolist()
    if min(flat) < 0:
        raise PlacementError(f"placement ranks must be >= 0, but got {min(flat)} in {ranks!r}")
    if len(set(flat)) != len(flat):
        twice = sorted({rank for rank in flat if flat.count(rank) > 1})
        raise PlacementError(
            f"placement ranks must be distinct, but rank {twice[0]} occurs more than once "
            f"in {ranks!r}"
        )
    return mesh.astype(np.int64)
