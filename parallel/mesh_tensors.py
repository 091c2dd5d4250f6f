"""torch.distributed.tensor: DTensor's names for global tensors and their layouts.

A DTensor is a global tensor, its device mesh a placement, and its placements are the tensor's sbp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeAlias, TypeVar, cast

import torch

from ..engine.autograd_function import Function
from ..engine.convert import read_grad_placements, to_global, to_local
from ..engine.grad_mode import no_grad
from ..engine.names import register_function
from ..engine.ops import creation, random_creation
from ..engine.sbp import (
    NdSbp,
    Sbp,
    broadcast,
    partial_max,
    partial_min,
    partial_sum,
    split,
    without_partial,
)
from ..engine.tensor import Tensor, add_method, tensor_ops
from ..errors import OnefoldIndexError, OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from ..nn.gathered_parameters import gradient_in
from ..nn.module import Module
from ..nn.parameter import Parameter
from .device_mesh import DeviceMesh, current_mesh, init_device_mesh

__all__ = [
    "DTensor",
    "DeviceMesh",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
    "empty",
    "full",
    "init_device_mesh",
    "ones",
    "rand",
    "randn",
    "zeros",
]

M = TypeVar("M", bound=Module)

__path__: list[str] = []  # compat/import_paths.py leads to what is below it


class MeshPlacement:
    """How a tensor lies along one axis of a mesh: the base of Shard, Replicate and Partial."""

    def as_sbp(self, ndim: int) -> Sbp:
        """The sbp of a tensor with `ndim` dims."""
        return sbp_of(self, ndim)

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether it is split, along `dim` if that is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the ranks have addends, or parts for another reduction."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(MeshPlacement):
    """Split along a dim: `flow.sbp.split(dim)`."""

    dim: int


@dataclass(frozen=True)
class Replicate(MeshPlacement):
    """Every rank has all of it: `flow.sbp.broadcast`."""


@dataclass(frozen=True)
class Partial(MeshPlacement):
    """The value is the sum, or maximum or minimum, over ranks: `flow.sbp.partial_sum`."""

    reduce_op: str = "sum"


Placement = MeshPlacement  # torch's name of it
Placements: TypeAlias = Sequence[MeshPlacement] | None

_REDUCTIONS = {"sum": partial_sum, "max": partial_max, "min": partial_min}


def sbp_of(placement: MeshPlacement, ndim: int) -> Sbp:
    """The sbp of a placement of a tensor with `ndim` dims."""
    if isinstance(placement, Shard):
        if ndim and not -ndim <= placement.dim < ndim:
            raise OnefoldIndexError(
                f"{placement!r}: a tensor of {ndim} dims has the dims {-ndim} to {ndim - 1}"
            )
        return split(placement.dim % ndim if ndim else placement.dim)
    if isinstance(placement, Replicate):
        return broadcast
    if isinstance(placement, Partial) and placement.reduce_op in _REDUCTIONS:
        return _REDUCTIONS[placement.reduce_op]
    raise OnefoldValueError(
        f"a placement is Shard(dim), Replicate() or Partial() of 'sum', 'max' or 'min', but got "
        f"{placement!r}"
    )


def _placement_of(sbp: Sbp) -> MeshPlacement:
    if sbp.is_split:
        return Shard(sbp.dim)
    if sbp.is_broadcast:
        return Replicate()
    return Partial(next(name for name, each in _REDUCTIONS.items() if each is sbp))


def _layout(mesh: DeviceMesh, placements: Placements, ndim: int) -> NdSbp:
    """The sbp over the whole placement of a mesh; broadcast along axes that it does not name."""
    chosen = [Replicate()] * mesh.ndim if placements is None else list(placements)
    if len(chosen) != mesh.ndim:
        raise OnefoldValueError(
            f"`placements` must have the same length as `device_mesh.ndim`: got {len(chosen)} "
            f"placements for {mesh.ndim} axes"
        )
    found = [broadcast] * mesh.placement.ndim
    for axis, placement in zip(mesh.axes, chosen, strict=True):
        found[axis] = sbp_of(placement, ndim)
    return tuple(found)


def _read_mesh(mesh: DeviceMesh | None, function: str) -> DeviceMesh:
    mesh = current_mesh() if mesh is None else mesh
    if not isinstance(mesh, DeviceMesh):
        raise OnefoldTypeError(
            f"{function}: device_mesh must be a DeviceMesh, such as init_device_mesh('cpu', (2,)), "
            f"but got {mesh!r}"
        )
    return mesh


class _IsGlobal(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor) and x.is_global


class DTensor(metaclass=_IsGlobal):
    """What isinstance asks for: a global tensor."""

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Placements = None,
        *,
        run_check: bool = False,
        shape: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
    ) -> Tensor:
        """The global tensor of which each rank has a part, with a gradient for the part.

        Where it is replicated, ranks get the value of the first one, and each of them all of the
        gradient, as in torch. `shape` and the other arguments are found out.
        """
        mesh = _read_mesh(device_mesh, "from_local")
        nd_sbp = _layout(mesh, placements, local_tensor.ndim)
        found: Tensor = _FromLocal.apply(local_tensor, mesh, nd_sbp)
        return found


class _FromLocal(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mesh: DeviceMesh, nd_sbp: NdSbp) -> Tensor:
        ctx.nd_sbp = without_partial(nd_sbp)
        return to_global(x, mesh.placement, nd_sbp, check_meta=True)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        return to_local(to_global(dy, sbp=ctx.nd_sbp)), None, None


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Placements = None,
    *,
    src_data_rank: int | None = 0,
) -> Tensor:
    """The global tensor with the value that the first rank has, replicated unless told otherwise.

    Like torch's it is a leaf, and a parameter if `tensor` is one. Raises OnefoldTypeError without a
    mesh, OnefoldValueError for placements that do not fit, or a tensor that is global already and
    lies otherwise.

    >>> import onefold as flow
    >>> mesh = init_device_mesh("cpu", (2,))
    >>> x = distribute_tensor(flow.ones(4, 2), mesh, [Shard(0)])
    >>> x.sbp, x.placements
    ((onefold.sbp.split(dim=0),), (Shard(dim=0),))
    """
    mesh = _read_mesh(device_mesh, "distribute_tensor")
    nd_sbp = _layout(mesh, placements, tensor.ndim)
    if tensor.is_global:
        if tensor.placement is not mesh.placement or tensor.sbp != nd_sbp:
            raise OnefoldValueError(
                f"distribute_tensor: the tensor is global already, {tensor.meta!r}; call "
                "redistribute() for another layout"
            )
        return tensor
    with no_grad():
        whole = to_global(tensor, mesh.placement, (broadcast,) * mesh.placement.ndim)
        found = to_global(whole, sbp=nd_sbp)
    if isinstance(tensor, Parameter):
        return Parameter(found, tensor.requires_grad)
    return found.requires_grad_(tensor.requires_grad)


def distribute_module(
    module: M,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, Module, DeviceMesh], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> M:
    """Make a module's parameters and buffers global, in place.

    `partition_fn(name, module, mesh)` may replace those of each submodule; the others are
    replicated. `input_fn(module, inputs, mesh)` and `output_fn(module, outputs, mesh)` are called
    before and after forward. Raises OnefoldTypeError without a mesh.
    """
    mesh = _read_mesh(device_mesh, "distribute_module")
    if partition_fn is not None:
        for name, each in module.named_modules():
            partition_fn(name, each, mesh)
    tensors = [*module.parameters(), *module.buffers()]
    if any(tensor.is_local for tensor in tensors):
        module.to_global(mesh.placement, lambda name, tensor: None)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda owner, given: input_fn(owner, given, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda owner, given, made: output_fn(owner, made, mesh))
    return module


@register_function
def redistribute(
    input: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Placements = None,
    *,
    async_op: bool = False,
    forward_dtype: torch.dtype | None = None,
    backward_dtype: torch.dtype | None = None,
) -> Tensor:
    """A global tensor in other placements, with the same value and a gradient: see `to_global`.

    It is sent, and given, in `forward_dtype`, and its gradient is sent in `backward_dtype`.
    `async_op` changes nothing. Raises OnefoldRuntimeError for a local tensor.
    """
    if input.is_local:
        raise OnefoldRuntimeError(
            "redistribute: the tensor is local; call distribute_tensor(x, device_mesh, placements)"
        )
    mesh = _mesh_of(input) if device_mesh is None else _read_mesh(device_mesh, "redistribute")
    nd_sbp = _layout(mesh, placements, input.ndim)
    if forward_dtype is not None:
        input = tensor_ops.to(input, forward_dtype)
    if backward_dtype in (None, input.dtype) or not input.requires_grad:
        return to_global(input, mesh.placement, nd_sbp)
    found = to_global(gradient_in(input, input.dtype), mesh.placement, nd_sbp)
    return gradient_in(found, backward_dtype)


@register_function
def full_tensor(input: Tensor, *, grad_placements: Placements = None) -> Tensor:
    """All of a global tensor as a local one, on every rank.

    Ranks are to have equal gradients for it, as in torch, of which each gets its part back, unless
    `grad_placements` says otherwise: Partial() where their sum counts. Raises OnefoldRuntimeError
    for a local tensor.
    """
    if input.is_local:
        raise OnefoldRuntimeError("full_tensor: the tensor is local already")
    back = (
        (broadcast,) * input.placement.ndim
        if grad_placements is None
        else read_grad_placements(input, grad_placements)
    )
    found: Tensor = _FullTensor.apply(input, back)
    return found


class _FullTensor(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, back: NdSbp) -> Tensor:
        ctx.place, ctx.sbp, ctx.back = x.placement, without_partial(x.sbp), back
        return to_local(to_global(x, sbp=(broadcast,) * x.placement.ndim), copy=True)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        return to_global(to_global(dy, ctx.place, ctx.back), sbp=ctx.sbp), None


def _mesh_of(x: Tensor) -> DeviceMesh:
    place = x.placement
    return DeviceMesh(place.device_type, place.ranks)


@register_function
def device_mesh(input: Tensor) -> DeviceMesh:
    """The placement of a global tensor as a device mesh."""
    return _mesh_of(input)


@register_function
def placements(input: Tensor) -> tuple[MeshPlacement, ...]:
    """The sbp of a global tensor as placements."""
    return tuple([_placement_of(sbp) for sbp in input.sbp])


add_method("redistribute")
add_method("full_tensor")


def _made_on_mesh(create: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of sizes as torch.distributed.tensor has it."""

    @wraps(create)
    def made(
        *size: Any,
        device_mesh: DeviceMesh | None = None,
        placements: Placements = None,
        **options: Any,
    ) -> Tensor:
        mesh = _read_mesh(device_mesh, create.__name__)
        shape = size[0] if size and not isinstance(size[0], int) else size
        nd_sbp = _layout(mesh, placements, len(cast("Sequence[int]", shape)))
        return create(*size, placement=mesh.placement, sbp=nd_sbp, **options)

    made.__doc__ = f"`flow.{create.__name__}` on a mesh, in these placements."
    return made


empty, ones, zeros = map(_made_on_mesh, (creation.empty, creation.ones, creation.zeros))
rand, randn = map(_made_on_mesh, (random_creation.rand, random_creation.randn))


def full(
    size: Sequence[int],
    fill_value: float,
    *,
    device_mesh: DeviceMesh | None = None,
    placements: Placements = None,
    **options: Any,
) -> Tensor:
    """`flow.full` on a mesh, in these placements."""
    mesh = _read_mesh(device_mesh, "full")
    nd_sbp = _layout(mesh, placements, len(size))
    return creation.full(size, fill_value, placement=mesh.placement, sbp=nd_sbp, **options)
