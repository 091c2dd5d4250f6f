"""from_dtensor and to_dtensor: global tensors from and to torch's DTensor.

Both express the same layouts on a mesh, but cut differently where a size does not divide: 5 over 4
ranks is 2, 1, 1, 1 here and 2, 2, 1, 0 in torch. Shards that agree are shared without a copy; a
dim that is cut differently is gathered first, then cut the other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement as TorchPlacement

from ..distributed.world import world
from ..engine.convert import box
from ..engine.meta import Box, Meta
from ..engine.placement import Placement
from ..engine.sbp import NdSbp, Sbp, broadcast, partial_max, partial_min, partial_sum, split
from ..engine.tensor import Tensor, from_shards
from ..engine.values import computed
from ..errors import OnefoldRuntimeError, OnefoldTypeError, PlacementError, SbpError

_PARTIAL = {"sum": partial_sum, "max": partial_max, "min": partial_min}
_meshes: WeakKeyDictionary[Placement, DeviceMesh] = WeakKeyDictionary()


def from_dtensor(value: DTensor) -> Tensor:
    """The global tensor with the value and layout of a DTensor, without its history.

    Collective over the mesh where a sharded size does not divide. Raises SbpError for a layout
    that onefold does not have (strided shards, partial products and averages).

    >>> from_dtensor(dt).sbp  # doctest: +SKIP
    (onefold.sbp.split(dim=0),)
    """
    if not isinstance(value, DTensor):
        raise OnefoldTypeError(f"from_dtensor needs a DTensor, got {type(value).__name__}")
    mesh = value.device_mesh
    if not world().launched and mesh.size() > 1:
        raise OnefoldRuntimeError(_NEEDS_LAUNCH.format(name="from_dtensor"))
    placement = Placement(mesh.device_type, mesh.mesh.tolist())
    nd_sbp = tuple(_sbp_of(layout) for layout in value.placements)
    meta = Meta.of(value.shape, value.dtype, placement, nd_sbp)
    loose = _cut_differently(meta)
    if loose:
        whole = [_torch_of(sbp) for sbp in _gathered(nd_sbp, loose)]
        value = value.redistribute(placements=whole)
    if not placement.owned:
        return from_shards((), meta)
    part = _narrowed(computed(value.to_local().detach()), meta.box(placement.owned[0]), loose)
    x = from_shards((part,), meta)
    x.shared = True
    return x


def to_dtensor(x: Tensor, device_mesh: DeviceMesh | None = None) -> DTensor:
    """A DTensor with the value and layout of a global tensor, without its history.

    `device_mesh` must have the placement's type and ranks; without it one is made, which all
    processes of the job must take part in. Collective over the placement where a split size does
    not divide. Raises OnefoldRuntimeError in a virtual world, where torch has no process group.
    """
    if not isinstance(x, Tensor):
        raise OnefoldTypeError(f"to_dtensor needs an onefold Tensor, got {type(x).__name__}")
    if not x.is_global:
        raise OnefoldRuntimeError(
            "to_dtensor needs a global tensor, but this one is local; make it global with "
            "to_global(placement=..., sbp=...), or use x.to_torch()"
        )
    if not world().launched:
        raise OnefoldRuntimeError(_NEEDS_LAUNCH.format(name="to_dtensor"))
    placement, nd_sbp, shape = x.placement, x.sbp, x.shape
    mesh = _mesh_of(placement) if device_mesh is None else _checked(device_mesh, placement)
    loose = _cut_differently(x.meta)
    if loose:
        x = box(x.detach(), x.meta.like(nd_sbp=_gathered(nd_sbp, loose)))
    part = torch.empty(0, dtype=x.dtype)
    if x.shards:
        wanted = _torch_box(Meta.of(shape, x.dtype, placement, nd_sbp), placement.owned[0])
        part = _narrowed(x.shards[0], wanted, loose)
        x.shared = True
    return DTensor.from_local(
        part,
        mesh,
        [_torch_of(sbp) for sbp in nd_sbp],
        shape=shape,
        stride=torch.empty(shape, device="meta").stride(),
    )


_NEEDS_LAUNCH = (
    "{name}: a DTensor lives on several processes, but this world is virtual (one process owns "
    "every rank). Start the program with `python -m onefold.distributed.launch`, or use "
    "to_torch() and flow.tensor(..., placement=, sbp=)."
)


def _sbp_of(layout: TorchPlacement) -> Sbp:
    # The exact type: strided shards are a subclass of Shard with another meaning.
    if type(layout) is Shard:
        return split(layout.dim)
    if type(layout) is Replicate:
        return broadcast
    if type(layout) is Partial and layout.reduce_op in _PARTIAL:
        return _PARTIAL[layout.reduce_op]
    raise SbpError(
        f"from_dtensor: {layout!r} has no counterpart; allowed are Shard(dim), Replicate() and "
        "Partial of sum, max or min. Call redistribute(placements=...) first."
    )


def _torch_of(sbp: Sbp) -> TorchPlacement:
    if sbp.is_split:
        return Shard(sbp.dim)
    return Replicate() if sbp is broadcast else Partial(sbp.reduction)


def _torch_box(meta: Meta, position: int) -> Box:
    """Like `Meta.box`, with torch's chunks: all but the last full ones of size ceil(n / p)."""
    offset, size = [0] * meta.ndim, list(meta.shape)
    coordinate = meta.global_placement.coordinate(position)
    for sbp, parts, index in zip(meta.nd_sbp, meta.global_placement.shape, coordinate, strict=True):
        if sbp.is_split:
            chunk = -(-size[sbp.dim] // parts)
            start = min(index * chunk, size[sbp.dim])
            offset[sbp.dim] += start
            size[sbp.dim] = min(chunk, size[sbp.dim] - start)
    return tuple(offset), tuple(size)


def _cut_differently(meta: Meta) -> set[int]:
    """The dims whose shards torch would cut at other places."""
    found: set[int] = set()
    for position in range(meta.global_placement.num_ranks):
        ours, theirs = meta.box(position), _torch_box(meta, position)
        for dim in range(meta.ndim):
            # Where a part is empty, its offset does not matter.
            same = ours[1][dim] == theirs[1][dim]
            if not same or (ours[1][dim] and ours[0][dim] != theirs[0][dim]):
                found.add(dim)
    return found


def _gathered(nd_sbp: NdSbp, dims: set[int]) -> NdSbp:
    return tuple(broadcast if sbp.is_split and sbp.dim in dims else sbp for sbp in nd_sbp)


def _narrowed(part: torch.Tensor, wanted: Box, dims: set[int]) -> torch.Tensor:
    for dim in dims:
        part = part.narrow(dim, wanted[0][dim], wanted[1][dim])
    return part.contiguous()


def _mesh_of(placement: Placement) -> DeviceMesh:
    if placement not in _meshes:
        world().connection()  # torch's process group
        _meshes[placement] = DeviceMesh(placement.type, placement.ranks.tolist())
    return _meshes[placement]


def _checked(mesh: Any, placement: Placement) -> DeviceMesh:
    if not isinstance(mesh, DeviceMesh):
        raise OnefoldTypeError(f"device_mesh must be a DeviceMesh, got {type(mesh).__name__}")
    ranks: Sequence[Any] = mesh.mesh.tolist()
    if mesh.device_type != placement.type or ranks != placement.ranks.tolist():
        raise PlacementError(
            f"to_dtensor: the tensor is on {placement!r}, but device_mesh has type "
            f"{mesh.device_type!r} and ranks {ranks}; move the tensor with to_global first"
        )
    return mesh
