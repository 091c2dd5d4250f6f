"""to_global, to_local and related functions: changes of placement and layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn, Protocol

import torch

from ..distributed import collectives, provenance
from ..distributed.topology import current_cuda_index
from ..distributed.world import world
from ..env import DEVICE
from ..errors import (
    OnefoldRuntimeError,
    OnefoldValueError,
    PlacementError,
    RankMismatch,
    SbpError,
    ShapeError,
    user_line,
)
from . import boxing, interpreter
from .autograd_tape import Node
from .boxing import BoxingPlan
from .dispatcher import unary
from .global_mode import OwnDevice
from .local_shards import joined_shape, own_parts, parts, report_problem, unbalanced
from .meta import Meta, check_nd_sbp
from .names import names, register_function
from .op import Metas, Needs, Op
from .placement import Placement
from .sbp import NdSbp, Sbp, SbpLike, as_nd_sbp, broadcast, partial_sum, short
from .tensor import Tensor, from_shards

CPU, META = torch.device("cpu"), torch.device("meta")


def dual(nd_sbp: NdSbp) -> NdSbp:
    """The layout of the gradient of a local part: split stays, broadcast and partial swap."""
    swap = {"B": partial_sum, "P": broadcast}
    return tuple(swap.get(sbp.kind, sbp) for sbp in nd_sbp)


# Global to global: boxing as an op.


class BoxingAttributes(NamedTuple):
    """Where to box to, and the gradient's layout (None: as it is produced)."""

    target: Meta
    grad_sbp: NdSbp | None


class Boxing(Op):
    """Boxing as an op: the gradient is boxed back to the input's placement."""

    name = "to_global"
    attributes = BoxingAttributes
    saves = ()

    def boxing(self, metas: Metas, attrs: BoxingAttributes) -> BoxingPlan:
        (x,) = metas
        assert x is not None
        return boxing.plan(x, attrs.target)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Meta, attrs: BoxingAttributes
    ) -> tuple[Tensor]:
        assert x.placement is not None
        produced = dy.meta.nd_sbp
        if attrs.grad_sbp is not None:
            nd_sbp = attrs.grad_sbp
        elif dy.meta.placement is x.placement or len(produced) == x.placement.ndim:
            nd_sbp = produced
        else:
            nd_sbp = x.nd_sbp
        return (box(dy, Meta.of(dy.shape, dy.dtype, x.placement, nd_sbp)),)


BOXING = Boxing()
_box = unary(BOXING)


@register_function
def box(x: Tensor, target: Meta, grad_sbp: NdSbp | None = None) -> Tensor:
    """`x` laid out as `target` says (same shape and dtype); `grad_sbp` is its gradient's layout."""
    if target is x.meta and grad_sbp is None:
        return x
    return _box(x, target, grad_sbp)


def read_device(device: str | int | torch.device | None) -> torch.device:
    """The device that a user named for a local tensor; "cuda" is the current one.

    None is the device of the innermost `with torch.device(...)` block, or else the CPU. While
    planning it is torch's "meta", where tensors have no data.
    """
    if world().planned:
        return META
    if device is None:
        if not torch._C._len_torch_function_stack():  # asking for the default takes microseconds
            return CPU
        device = torch.get_default_device()
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise OnefoldRuntimeError(
            f"a device is 'cpu', 'cuda', 'cuda:N' or 'meta', but got {device!r}"
        ) from error
    if found.type != "cuda":
        return found
    if DEVICE.read() == "cpu":
        return CPU
    if not torch.cuda.is_available():
        raise OnefoldRuntimeError(
            f"device={str(device)!r}: this machine has no CUDA device that torch can use. Set "
            'ONEFOLD_DEVICE=cpu to read every "cuda" as "cpu", or use the cpu.'
        )
    return found if ":" in str(found) else torch.device("cuda", current_cuda_index())


def read_layout(
    placement: object, sbp: SbpLike | None, shape: Sequence[int] | None, what: str
) -> tuple[Placement, NdSbp]:
    """Check a placement and sbp that a user gave together for a tensor of this shape, if known."""
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
    if shape is not None:
        check_nd_sbp(shape, nd_sbp)
    return placement, nd_sbp


@register_function
def global_to_global(
    self: Tensor,
    placement: Placement | None = None,
    sbp: SbpLike | None = None,
    *,
    grad_sbp: SbpLike | None = None,
    check_meta: bool = False,
    copy: bool = False,
) -> Tensor:
    """This global tensor with another placement or sbp and the same value.

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
    return names.clone(y) if copy and y is self else y


# Local to global.


class _LocalToGlobal:
    name = "local_to_global"

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta) -> tuple[Tensor]:
        part = box(dy, Meta.of(dy.shape, dy.dtype, y.placement, dual(y.nd_sbp)))
        if part.shards:
            assert x.device is not None
            return (names.to(to_local(part), x.device),)
        return (names.zeros(x.shape, dtype=x.dtype, device=OwnDevice(x.device)),)  # not a member


_LOCAL_TO_GLOBAL = _LocalToGlobal()


def _has_peers() -> bool:
    """Whether other processes take part in making tensors global."""
    here = world()
    return here.launched and not here.planned


def _read_join(
    x: Tensor, placement: object, sbp: SbpLike | None, check_meta: bool
) -> tuple[Placement, NdSbp]:
    if placement is None:
        raise PlacementError(
            f"local_to_global: got sbp={sbp!r} without placement; give both, for instance "
            'placement=flow.placement("cpu", ranks=[0, 1])'
        )
    compared = check_meta and _has_peers()  # a part that is not joined may have any shape
    counts = not compared or not isinstance(placement, Placement) or bool(placement.owned)
    return read_layout(placement, sbp, x.shape if counts else None, "local_to_global")


@register_function
def local_to_global(
    self: Tensor,
    placement: Placement | None = None,
    sbp: SbpLike | None = None,
    *,
    check_meta: bool = True,
    copy: bool = False,
) -> Tensor:
    """The global tensor of which this local tensor is this rank's part.

    split: the parts are joined and must be balanced; broadcast: the value of the placement's
    first rank (along the axis) is taken; partial_sum: the parts are addends. A part on another
    device than the placement's is copied there, and its gradient back. With `check_meta`
    all processes of the job take part and disagreement is an error on each of them; what processes
    outside the placement pass does not count, whatever its shape and dtype. Without it every
    process, those outside too, trusts that the members hold parts of its own part's shape and
    dtype.
    """
    if self.is_global:
        raise OnefoldRuntimeError(
            "local_to_global: the tensor is global already; use global_to_global or to_global"
        )
    try:
        to_placement, nd_sbp = _read_join(self, placement, sbp, check_meta)
    except OnefoldValueError as error:
        if check_meta and _has_peers():
            report_problem(error, placement)  # the others wait for it
        raise
    if interpreter.capturing():
        raise OnefoldRuntimeError(
            f"a local tensor cannot become global while a graph is captured, but {self.meta!r} "
            f"should at {user_line()}. Make it global at once, as in arange(n, device=x.device) or "
            "zeros(n, placement=x.placement, sbp=flow.sbp.broadcast), or convert it outside build()"
        )
    joined = parts(self, to_placement, nd_sbp, check_meta)
    shape = joined_shape(joined.shapes, to_placement, nd_sbp)
    meta = Meta.of(shape, joined.dtype, to_placement, nd_sbp)
    for position, part in enumerate(joined.shapes):
        if meta.local_shape(position) != part:
            raise unbalanced(meta, joined.shapes)
    y = from_shards(own_parts(self, meta, copy), meta)
    if provenance.state.on and check_meta:
        provenance.record(y.shards, provenance.mark(f"local_to_global of {meta!r}"))
    elif provenance.state.on:
        provenance.forget(y.shards)
    if not copy:
        self.shared = y.shared = True
    elif len(y.shards) > 1:
        y.shared = True  # replicas of a virtual world are one torch tensor
    if joined.requires_grad and interpreter.is_grad_enabled():  # one tape on every process
        y.node = Node(_LOCAL_TO_GLOBAL, (self.node,), (self.meta,), None, meta)
    return y


@register_function
def to_global(
    self: Tensor,
    placement: Placement | None = None,
    sbp: SbpLike | None = None,
    *,
    grad_sbp: SbpLike | None = None,
    check_meta: bool | None = None,
    copy: bool = False,
) -> Tensor:
    """This tensor as a global one: `local_to_global` of a local tensor, else `global_to_global`.

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

    def __init__(self, grad_sbp: NdSbp | None = None) -> None:
        self.grad_sbp = grad_sbp

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta) -> tuple[Tensor]:
        assert x.placement is not None
        nd_sbp = dual(x.nd_sbp) if self.grad_sbp is None else self.grad_sbp
        back = Meta.of(x.shape, dy.dtype, x.placement, nd_sbp)
        if not world().launched and any(
            back.local_shape(i) != tuple(dy.shape) for i in x.placement.owned
        ):
            raise ShapeError(
                "the gradient of to_local() in a virtual world needs shards of one shape, since "
                f"one local tensor stands for all of them, but {x!r} is split unevenly"
            )
        grad = from_shards(dy.shards * len(x.placement.owned), back)
        dy.shared = grad.shared = True
        return (grad,)


_TO_LOCAL = _ToLocal()


class SupportsSbp(Protocol):
    """A layout along one axis in other words, such as torch's Shard(0)."""

    def as_sbp(self, ndim: int) -> Sbp:
        """The sbp of a tensor with `ndim` dims."""
        ...


def read_grad_placements(x: Tensor, given: Sequence[SupportsSbp]) -> NdSbp:
    """How the gradients of a local tensor make up that of the global tensor `x`."""
    found = as_nd_sbp([each.as_sbp(x.ndim) for each in given], x.placement.ndim)
    check_nd_sbp(x.shape, found)
    return found


@register_function
def to_local(
    self: Tensor, *, grad_placements: Sequence[SupportsSbp] | None = None, copy: bool = False
) -> Tensor:
    """This process's shard as a local tensor.

    In a virtual world, the shard of the placement's first rank. A process outside the placement
    gets an empty tensor. `grad_placements` says how the ranks' gradients make up that of this
    tensor, by default as split as it is, and their sum where it is broadcast: for instance
    Replicate() where they are equal. Raises ShapeError where they would have other shapes.
    """
    if not self.is_global:
        raise OnefoldRuntimeError("to_local: the tensor is local already")
    back = _TO_LOCAL
    if grad_placements is not None:
        grad_sbp = read_grad_placements(self, grad_placements)
        back = _ToLocal(grad_sbp)
        shaped = Meta.of(self.shape, self.dtype, self.placement, grad_sbp)
        if any(shaped.local_shape(i) != self.meta.local_shape(i) for i in self.placement.owned):
            raise ShapeError(
                f"to_local: gradients of the shards of {self.meta!r} cannot lie as "
                f"{short(shaped.nd_sbp)}, whose shards have other shapes"
            )
    if interpreter.capturing():
        raise OnefoldRuntimeError(
            "a global tensor cannot become local while a graph is captured; convert its outputs"
        )
    if not self.shards:
        shape = (0,) if self.meta.has_data else self.meta.local_shape(0)
        empty = torch.empty(shape, dtype=self.dtype, device=None if self.meta.has_data else META)
        return from_shards((empty,), Meta.of(empty.shape, self.dtype, device=empty.device))
    part = self.shards[0].clone() if copy else self.shards[0]
    y = from_shards((part,), Meta.of(part.shape, part.dtype, device=part.device))
    if not copy:
        self.shared = y.shared = True
    if self.node is not None and interpreter.is_grad_enabled():
        y.node = Node(back, (self.node,), (self.meta,), None, y.meta)
    return y


@register_function
def check_meta_consistency(self: Tensor) -> None:
    """Check, collectively, that all processes agree on shape, dtype, placement and sbp.

    Raises RankMismatch on every process, naming the ranks that differ and their lines.
    """
    here = world()
    if not _has_peers():
        return
    gathered = collectives.gather_objects((repr(self.meta), user_line()), tuple(range(here.size)))
    for rank, (meta, line) in enumerate(gathered):
        if meta != gathered[0][0]:
            raise RankMismatch(
                f"ranks disagree on a tensor: rank 0 has {gathered[0][0]} at {gathered[0][1]}, "
                f"rank {rank} has {meta} at {line}"
            )


@register_function
def to_consistent(self: Tensor, *args: object, **kwargs: object) -> NoReturn:
    """Removed in OneFlow; raises an error that says so."""
    raise OnefoldRuntimeError(".to_consistent has been removed, please use .to_global instead")
