"""Moves and copies of tensors: to, cpu, cuda, data, deep copies."""

from __future__ import annotations

import torch

from ...errors import (
    OnefoldNotImplementedError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    ShapeError,
)
from .. import global_mode, interpreter
from ..argument_types import DeviceLike
from ..autograd_tape import Node
from ..convert import box, global_to_global, local_to_global, read_device
from ..inplace import become
from ..meta import Meta
from ..names import register_function
from ..op import Gradients, Needs
from ..placed_device import PlacedDevice
from ..placement import Placement
from ..sbp import broadcast
from ..tensor import Tensor, from_shards
from .cast import cast, clone
from .memory_formats import in_format


class _ToDevice:
    name = "to_device"

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta) -> Gradients:
        assert x.device is not None
        return (_to_device(dy, x.device),)


_TO_DEVICE = _ToDevice()


def _to_device(x: Tensor, device: torch.device) -> Tensor:
    if x.meta.device == device:
        return x
    if not x.meta.has_data:
        raise OnefoldNotImplementedError(
            f"Cannot copy out of meta tensor; no data: {x.meta!r} was to go to {device}. Use "
            "module.to_empty(device=...) where a module leaves the meta device, or "
            "flow.empty_like(x, device=...) for a tensor"
        )
    y = from_shards((x.shards[0].to(device),), Meta.of(x.shape, x.dtype, device=device))
    if x.node is not None and interpreter.is_grad_enabled():
        y.node = Node(_TO_DEVICE, (x.node,), (x.meta,), None, y.meta)
    return y


def _to_type(x: Tensor, kind: str) -> Tensor:
    """A global tensor on the same ranks of another device type."""
    placement = Placement(kind.split(":")[0], x.placement.ranks)
    return box(x, Meta.of(x.shape, x.dtype, placement, x.meta.nd_sbp))


def _to_placement(x: Tensor, placement: Placement) -> Tensor:
    """A tensor on a placement: a local one is broadcast, a global one keeps its sbp if it fits."""
    whole = (broadcast,) * placement.ndim
    if x.is_local:
        return local_to_global(x, placement, whole)
    return global_to_global(x, placement, x.sbp if x.placement.ndim == placement.ndim else whole)


@register_function
def to(
    self: Tensor,
    *args: torch.dtype | DeviceLike | PlacedDevice | Tensor | type[Tensor] | None,
    dtype: torch.dtype | None = None,
    device: DeviceLike | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: torch.memory_format | None = None,
    **unknown: object,
) -> Tensor:
    """Another dtype, device, or both: `x.to(dtype)`, `x.to(device)`, `x.to(other)`.

    A local tensor moves to a device. A global one keeps its ranks: `x.to("cuda")` changes the
    device type of its placement, `x.to("cuda:1")` is an error. With the device of a global tensor,
    `x.to(y.device)`, x goes to that placement. `non_blocking` is torch's hint:
    copies are ordered with the ops here. A `memory_format` is that of the result's memory.
    For a parameter, `to(flow.Tensor)` gives it as it is, as the blocks of OneFlow's graphs do.
    """
    if unknown:
        raise OnefoldTypeError(
            f"to() got unknown arguments {sorted(unknown)}; for placement and sbp use to_global"
        )
    flags = [arg for arg in args if isinstance(arg, bool)]  # non_blocking, copy
    copy = flags[1] if len(flags) > 1 else copy
    for arg in args:
        if arg is None or isinstance(arg, bool) or (arg is Tensor and type(self) is not Tensor):
            continue
        if isinstance(arg, torch.dtype):
            dtype = arg
        elif isinstance(arg, Tensor):
            dtype, device = arg.dtype, arg.device
        elif isinstance(arg, (str, int, torch.device, PlacedDevice)):
            device = arg
        elif isinstance(arg, type):
            raise OnefoldTypeError(
                f"to() takes a dtype, a device or another tensor, but got the class "
                f"{arg.__name__}; give one of its tensors, or use x.type(...) for types such as "
                "flow.FloatTensor"
            )
        else:
            raise OnefoldTypeError(
                f"to() takes a dtype, a device or a tensor, but got {arg!r}; for placements and "
                "sbp use to_global(placement=..., sbp=...)"
            )
    y = self
    if device is not None:
        if isinstance(device, PlacedDevice):
            y = _to_placement(self, device.placement)
        elif self.is_local:
            y = _to_device(y, read_device(device))
        else:
            wanted = torch.device(device)  # only its type counts
            if not global_mode.is_enabled() and wanted.index is not None:
                raise OnefoldRuntimeError(
                    f"to({str(device)!r}): a global tensor keeps its ranks, so the device index is "
                    f"not free; use to({wanted.type!r}) or to_global(placement=...)"
                )
            if wanted.type == "meta":
                raise OnefoldRuntimeError(
                    "to('meta'): a global tensor is on the devices of its ranks; make it local "
                    "first, with to_local(), or describe the program in flow.planning(size), where "
                    "no tensor has data"
                )
            y = _to_type(y, wanted.type)
    if dtype is not None and dtype != y.dtype:
        y = cast(y, dtype)
    if memory_format is not None and memory_format is not torch.preserve_format:
        return in_format(y, memory_format)
    return clone(y) if copy and y is self else y


@register_function
def to_dense(
    self: Tensor, dtype: torch.dtype | None = None, *, masked_grad: bool | None = None
) -> Tensor:
    """The tensor itself, in `dtype` if that is given: all tensors are dense."""
    return self if dtype is None else cast(self, dtype)


@register_function
def cpu(self: Tensor, memory_format: torch.memory_format | None = None) -> Tensor:
    """The tensor on the cpu (a global one on the same ranks)."""
    return to(self, "cpu", memory_format=memory_format)


@register_function
def cuda(
    self: Tensor,
    device: DeviceLike | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> Tensor:
    """The tensor on cuda (a global one on the same ranks)."""
    number = f"cuda:{device}" if isinstance(device, int) else device
    return to(self, "cuda" if number is None else number, memory_format=memory_format)


@register_function
def set_data(self: Tensor, value: Tensor) -> None:
    """Take another tensor's value, dtype and layout, outside the tape; no view of it follows."""
    if not isinstance(value, Tensor):
        raise OnefoldTypeError(f".data must be a Tensor, but got {type(value).__name__}")
    if value.shape != self.shape:
        raise ShapeError(
            f".data must keep the shape {tuple(self.shape)}, but got {tuple(value.shape)}"
        )
    become(self, value)
