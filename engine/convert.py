"""to_global, to_local and their kin: changing where and how a tensor is laid out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import env
from ..distributed import collectives
from ..distributed.world import world
from ..errors import (
    OnefoldRuntimeError,
    PlacementError,
    RankMismatch,
    SbpError,
    ShapeError,
    user_line,
)
from . import boxing, interp
from .meta import Meta, check_nd_sbp
from .names import enter, named, names
from .placement import Placement
from .sbp import NdSbp, as_nd_sbp, broadcast, partial_sum, short
from .tape import Node
from .tensor import Tensor


def dual(nd_sbp: NdSbp) -> NdSbp:
    """The layout of the gradient of a local part: split stays, broadcast and partial swap."""
    swap = {"B": partial_sum, "P": broadcast}
    return tuple(swap.get(sbp.kind, sbp) for sbp in nd_sbp)


# Global to global: boxing as an op.


class _Boxing:
    """Boxing on the tape: the gradient is boxed back to the input's placement."""

    name = "to_global"

    def vjp(
        self, needs: Sequence[object], dy: Tensor, y: Any, x: Meta, grad_sbp: NdSbp | None
    ) -> tuple[Tensor]:
        assert x.placement is not None
        produced = dy.meta.nd_sbp
        if grad_sbp is not None:
            nd_sbp = grad_sbp
        elif dy.meta.placement is x.placement or len(produced) == x.placement.ndim:
            nd_sbp = produced
        else:
            nd_sbp = x.nd_sbp
        return (box(dy, Meta.of(dy.shape, dy.dtype, x.placement, nd_sbp)),)


BOXING = _Boxing()


def box(x: Tensor, target: Meta, grad_sbp: NdSbp | None = None) -> Tensor:
    """`x` laid out as `target` says (same shape and dtype); `grad_sbp` is its gradient's layout."""
    if interp.current is not None:
        return interp.current.run(box, BOXING, (x, target, grad_sbp))  # type: ignore[no-any-return]
    if target is x.meta and grad_sbp is None:
        return x
    plan = boxing.plan(x.meta, target)
    y = Tensor(boxing.run(plan, x.shards, op="to_global"), target)
    if plan.aliases:
        x.shared = y.shared = True
    if x.node is not None and interp.grad_enabled:
        y.node = Node(BOXING, (x.node,), (x.meta, grad_sbp), None, target)
    return y


def read_device(device: Any) -> torch.device:
    """The device that a user named for a local tensor; "cuda" is the current one."""
    try:
        found = torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError) as error:
        raise OnefoldRuntimeError(
            f"a device is 'cpu', 'cuda' or 'cuda:N', but got {device!r}"
        ) from error
    if found.type != "cuda":
        return found
    if env.device() == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise OnefoldRuntimeError(
            f"device={str(device)!r}: this machine has no CUDA device that torch can use. Set "
            'ONEFOLD_DEVICE=cpu to read every "cuda" as "cpu", or use the cpu.'
        )
    return torch.device("cuda", torch.cuda.current_device()) if found.index is None else found


def read_layout(
    placement: Any, sbp: Any, shape: Sequence[int], what: str
) -> tuple[Placement, NdSbp]:
    """Check a placement and sbp that a user gave together for a tensor of this shape."""
    if not isinstance(placement, Placement):
        raise PlacementError(
            f"{what}: placement must be an onefold.placement, but got {placement!r}; write for "
            'instance flow.placement("cpu", ranks=[0, 1])'
        )
    if sbp is None:
        raise SbpError(
            f"{what}: got placement={placement!r} without sbp; give both, for instance "
            f"sbp={(broadcast,) * placement.ndim!r}"
        )
    nd_sbp = as_nd_sbp(sbp, placement.ndim)
    check_nd_sbp(shape, nd_sbp)
    return placement, nd_sbp


def global_to_global(
    self: Tensor,
    placement: Placement | None = None,
    sbp: Any = None,
    *,
    grad_sbp: Any = None,
    check_meta: bool = False,
    copy: bool = False,
) -> Tensor:
    """This global tensor on another placement or in another sbp; the value stays the same.

    What is left out is kept. The gradient comes back to this tensor's placement with sbp
    `grad_sbp`, else as it was produced. Collective over both placements.
    """
    if not self.is_global:
        raise OnefoldRuntimeError(
            "global_to_global: the tensor is local; use local_to_global or to_global"
        )
    to_placement = self.placement if placement is None else placement
    if sbp is None and isinstance(to_placement, Placement):
        if to_placement.ndim != self.placement.ndim:
            raise SbpError(
                f"to_global: {to_placement!r} has {to_placement.ndim} axes but the tensor's sbp "
                f"{short(self.sbp)} has {len(self.sbp)}; give sbp= with one entry per axis"
            )
        sbp = self.sbp
    to_placement, nd_sbp = read_layout(to_placement, sbp, self.shape, "to_global")
    grad_nd_sbp = None
    if grad_sbp is not None:
        grad_nd_sbp = as_nd_sbp(grad_sbp, self.placement.ndim)
        check_nd_sbp(self.shape, grad_nd_sbp)
    if check_meta:
        check_meta_consistency(self)
    y = box(self, Meta.of(self.shape, self.dtype, to_placement, nd_sbp), grad_nd_sbp)
    return names.clone(y) if copy and y is self else y  # type: ignore[no-any-return]


# Local to global.


class _LocalToGlobal:
    name = "local_to_global"

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta) -> tuple[Tensor]:
        part = box(dy, Meta.of(dy.shape, dy.dtype, y.placement, dual(y.nd_sbp)))
        if part.shards:
            return (to_local(part),)
        return (names.zeros(x.shape, dtype=dy.dtype, device=x.device),)  # not a member


_LOCAL_TO_GLOBAL = _LocalToGlobal()


def local_to_global(
    self: Tensor,
    placement: Placement | None = None,
    sbp: Any = None,
    *,
    check_meta: bool = True,
    copy: bool = False,
) -> Tensor:
    """The global tensor of which this local tensor is this rank's part.

    split: the parts are joined and must be balanced; broadcast: the value of the placement's
    first rank (along the axis) is taken; partial_sum: the parts are addends. With `check_meta`
    all processes of the job take part and disagreement is an error on each of them; without it
    every process trusts that the others hold parts of its own part's shape.
    """
    if self.is_global:
        raise OnefoldRuntimeError(
            "local_to_global: the tensor is global already; use global_to_global or to_global"
        )
    if placement is None:
        raise PlacementError(
            f"local_to_global: got sbp={sbp!r} without placement; give both, for instance "
            'placement=flow.placement("cpu", ranks=[0, 1])'
        )
    to_placement, nd_sbp = read_layout(placement, sbp, self.shape, "local_to_global")
    if interp.current is not None:
        raise OnefoldRuntimeError(
            "a local tensor cannot become global while a graph is captured; convert it before"
        )
    shapes = _part_shapes(self, to_placement, nd_sbp, check_meta)
    shape = _joined_shape(shapes, to_placement, nd_sbp)
    meta = Meta.of(shape, self.dtype, to_placement, nd_sbp)
    for position, part in enumerate(shapes):
        if meta.local_shape(position) != part:
            _unbalanced(meta, shapes)
    y = Tensor(_parts(self, meta, copy), meta)
    if not copy:
        self.shared = y.shared = True
    elif len(y.shards) > 1:
        y.shared = True  # replicas of a virtual world are one torch tensor
    if self.node is not None and interp.grad_enabled:
        y.node = Node(_LOCAL_TO_GLOBAL, (self.node,), (self.meta,), None, meta)
    return y


def _part_shapes(
    x: Tensor, placement: Placement, nd_sbp: NdSbp, check_meta: bool
) -> list[tuple[int, ...]]:
    here = world()
    if not here.launched or not check_meta:
        return [tuple(x.shape)] * placement.num_ranks
    mine = (tuple(x.shape), str(x.dtype), repr(placement), short(nd_sbp))
    all_ranks = tuple(range(here.size))
    told = collectives.gather_objects((mine, user_line()), all_ranks)
    member = placement.flat_ranks[0]
    for rank, (theirs, line) in enumerate(told):
        skip = 0 if rank in placement.position else 2  # a non-member's part does not count
        if theirs[max(skip, 1) :] != told[member][0][max(skip, 1) :]:
            raise RankMismatch(
                "local_to_global: ranks disagree on (dtype, placement, sbp): rank "
                f"{member} has {told[member][0][1:]} at {told[member][1]}, rank {rank} has "
                f"{theirs[1:]} at {line}. Every rank must pass the same."
            )
    return [told[rank][0][0] for rank in placement.flat_ranks]


def _joined_shape(
    shapes: list[tuple[int, ...]], placement: Placement, nd_sbp: NdSbp
) -> tuple[int, ...]:
    ndims = {len(shape) for shape in shapes}
    if len(ndims) > 1:
        raise ShapeError(f"local_to_global: the parts have different numbers of dims: {shapes}")
    shape = list(shapes[0])
    for dim in range(len(shape)):
        axes = [axis for axis, sbp in enumerate(nd_sbp) if sbp.kind == "S" and sbp.dim == dim]
        if axes:
            shape[dim] = sum(shapes[position][dim] for position in placement.group(0, axes))
    return tuple(shape)


def _unbalanced(meta: Meta, shapes: list[tuple[int, ...]]) -> None:
    assert meta.placement is not None
    dims = sorted({sbp.dim for sbp in meta.nd_sbp if sbp.kind == "S"})
    wanted = {rank: tuple(meta.local_shape(i)) for i, rank in enumerate(meta.placement.flat_ranks)}
    found = dict(zip(meta.placement.flat_ranks, shapes, strict=True))
    where = f"dimension {dims[0]}" if dims else "every dimension"
    raise ShapeError(
        f"Sizes of tensors in {where} must be same or match balanced split distribution: for "
        f"sbp {short(meta.nd_sbp)} the parts must be {wanted} (rank: shape), but are {found}. "
        "The first ranks hold one more where the size does not divide."
    )


def _parts(x: Tensor, meta: Meta, copy: bool) -> tuple[torch.Tensor, ...]:
    assert meta.placement is not None
    placement, owned = meta.placement, meta.placement.owned
    if not owned:
        return ()
    part = x.shards[0].clone() if copy else x.shards[0]
    axes = [axis for axis, sbp in enumerate(meta.nd_sbp) if sbp.kind == "B"]
    if not world().launched or not axes:
        return (part,) * len(owned)
    group = tuple(placement.flat_ranks[p] for p in placement.group(owned[0], axes))
    mine = placement.flat_ranks[owned[0]] == group[0]
    return (
        collectives.broadcast(
            part if mine else None, part.shape, part.dtype, part.device, group[0], group
        ),
    )


def to_global(
    self: Tensor,
    placement: Placement | None = None,
    sbp: Any = None,
    *,
    grad_sbp: Any = None,
    check_meta: bool | None = None,
    copy: bool = False,
) -> Tensor:
    """This tensor as a global one: `local_to_global` or `global_to_global`, by what it is.

    >>> import onefold as flow
    >>> x = flow.ones(2, 3).to_global(flow.placement("cpu", [0, 1]), flow.sbp.split(0))
    >>> x.shape, x.sbp
    (torch.Size([4, 3]), (onefold.sbp.split(dim=0),))
    """
    if self.is_global:
        return global_to_global(
            self, placement, sbp, grad_sbp=grad_sbp, check_meta=bool(check_meta), copy=copy
        )
    if grad_sbp is not None:
        raise SbpError(
            "to_global: grad_sbp is for global tensors; the gradient of a local part has the "
            "dual layout of sbp"
        )
    return local_to_global(
        self, placement, sbp, check_meta=True if check_meta is None else check_meta, copy=copy
    )


# Global to local.


class _ToLocal:
    name = "to_local"

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Any, x: Meta) -> tuple[Tensor]:
        assert x.placement is not None
        back = Meta.of(x.shape, dy.dtype, x.placement, dual(x.nd_sbp))
        if not world().launched and any(
            back.local_shape(i) != tuple(dy.shape) for i in x.placement.owned
        ):
            raise ShapeError(
                "the gradient of to_local() in a virtual world needs shards of one shape, since "
                f"one local tensor stands for all of them, but {x!r} is split unevenly"
            )
        grad = Tensor(dy.shards * len(x.placement.owned), back)
        dy.shared = grad.shared = True
        return (grad,)


_TO_LOCAL = _ToLocal()


def to_local(self: Tensor, *, copy: bool = False) -> Tensor:
    """This process's shard as a local tensor.

    In a virtual world, the shard of the placement's first rank. A process outside the placement
    gets an empty tensor.
    """
    if not self.is_global:
        raise OnefoldRuntimeError("to_local: the tensor is local already")
    if interp.current is not None:
        raise OnefoldRuntimeError(
            "a global tensor cannot become local while a graph is captured; convert its outputs"
        )
    if not self.shards:
        empty = torch.empty(0, dtype=self.dtype)
        return Tensor((empty,), Meta.of(empty.shape, self.dtype, device=empty.device))
    part = self.shards[0].clone() if copy else self.shards[0]
    y = Tensor((part,), Meta.of(part.shape, part.dtype, device=part.device))
    if not copy:
        self.shared = y.shared = True
    if self.node is not None and interp.grad_enabled:
        y.node = Node(_TO_LOCAL, (self.node,), (self.meta,), None, y.meta)
    return y


def check_meta_consistency(self: Tensor) -> None:
    """Check, collectively, that all processes agree on shape, dtype, placement and sbp.

    Raises RankMismatch on every process, naming the ranks that differ and their lines.
    """
    here = world()
    if not here.launched:
        return
    told = collectives.gather_objects((repr(self.meta), user_line()), tuple(range(here.size)))
    for rank, (meta, line) in enumerate(told):
        if meta != told[0][0]:
            raise RankMismatch(
                f"ranks disagree on a tensor: rank 0 has {told[0][0]} at {told[0][1]}, rank "
                f"{rank} has {meta} at {line}"
            )


def to_consistent(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Removed long ago; says so."""
    raise OnefoldRuntimeError(".to_consistent has been removed, please use .to_global instead")


for _function in (
    to_global,
    to_local,
    local_to_global,
    global_to_global,
    check_meta_consistency,
    to_consistent,
):
    named(_function)

enter("box", box)
