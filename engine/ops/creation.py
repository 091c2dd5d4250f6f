"""Creation of tensors: constants, from data. Each rank creates only its own shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any, Unpack

import numpy as np
import torch

from ...distributed import provenance
from ...errors import (
    MixedTensorsError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    PlacementError,
    SbpError,
    kind_of,
)
from ...kernels.memory_format_ref import in_format
from ...kernels.select import pick
from .. import interpreter
from ..argument_types import DeviceLike, Dims, Layout, NumberLike, SizedLayout, TypedLayout
from ..convert import read_device, read_layout
from ..global_mode import layout_of_new
from ..grad_attributes import set_requires_grad
from ..meta import Box, Meta, Shape, blank_shards
from ..names import register_function
from ..out_tensors import give_to, made_for
from ..placed_device import PlacedDevice
from ..placement import Placement
from ..sbp import SbpLike, broadcast, short
from ..tensor import Tensor, from_shards
from ..values import item, whole
from .memory_formats import check_rank

Size = Sequence[int]
# Makes the part of the logical tensor that lies in a box: (box, device) -> torch tensor.
Maker = Callable[[Box, torch.device], torch.Tensor]


# What torch's functions of creation are asked for that is so here anyway.
_DENSE: dict[str, tuple[object, ...]] = {
    "layout": (torch.strided, None),
    "pin_memory": (False, None),
}


class Source:
    """A creation function as an op: what capture records, and what eager mode runs."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"source {self.name}"


def make(
    what: str,
    shape: Size,
    dtype: torch.dtype,
    maker: Maker,
    *,
    device: DeviceLike | None = None,
    placement: Placement | None = None,
    sbp: SbpLike | None = None,
    requires_grad: bool = False,
    is_random: bool = False,
    **unknown: object,
) -> Tensor:
    """A tensor of this shape and layout whose shards `maker` makes."""
    memory_format = unknown.pop("memory_format", None)
    for key, value in unknown.items():
        if value not in _DENSE.get(key, ()):
            raise OnefoldTypeError(
                f"{what}() got an unexpected keyword argument {key!r}; layouts are given by "
                "device= (local), or placement= and sbp= (global)"
            )
    if not isinstance(dtype, torch.dtype):
        raise OnefoldTypeError(f"{what}: dtype must be a torch.dtype, but got {kind_of(dtype)}")
    if device is not None and placement is not None:
        raise OnefoldTypeError(
            f"{what}: got both device={device!r} and placement={placement!r}; a global tensor "
            "has a placement, a local one a device"
        )
    shape = tuple(shape)
    if min(shape, default=0) < 0:
        raise OnefoldRuntimeError(f"{what}: sizes must be >= 0, but got shape {shape}")
    if memory_format is not None:
        maker = _formatted(maker, memory_format, what, len(shape))
    if placement is None and sbp is None:
        layout = layout_of_new(device)
        if layout is not None:
            (placement, sbp), device = layout, None
    if isinstance(device, PlacedDevice):
        placement, device = device.placement, None
        sbp = (broadcast,) * placement.ndim if sbp is None else sbp
    if placement is None:
        if sbp is not None:
            raise PlacementError(
                f"{what}: got sbp={sbp!r} without placement; give both, for instance "
                'placement=flow.placement("cpu", ranks=[0, 1])'
            )
        meta = Meta.of(shape, dtype, device=read_device(device))
    else:
        placement, nd_sbp = read_layout(placement, sbp, shape, what)
        if is_random and any(s.is_partial for s in nd_sbp):
            raise SbpError(
                f"{what}: random source op only support broadcast or split, but sbp is "
                f"{short(nd_sbp)}; create it so and convert it with to_global"
            )
        meta = Meta.of(shape, dtype, placement, nd_sbp)
    if (current := interpreter.get_current()) is not None:
        return current.run(_run, Source(what), (meta, maker, requires_grad))
    return _run(meta, maker, requires_grad)


def _formatted(maker: Maker, memory_format: object, what: str, ndim: int) -> Maker:
    """A maker of the same shards in a memory format; raises for what is none or does not fit."""
    if memory_format in (torch.contiguous_format, torch.preserve_format):
        return maker
    if not isinstance(memory_format, torch.memory_format):
        raise OnefoldTypeError(
            f"{what}: memory_format must be a torch.memory_format such as flow.channels_last, but "
            f"got {kind_of(memory_format)}"
        )
    check_rank(ndim, memory_format)

    @wraps(maker)
    def call(box: Box, device: torch.device) -> torch.Tensor:
        made = maker(box, device)
        if what == "empty":
            return torch.empty_like(made, memory_format=memory_format)
        return pick(in_format, made.device.type)(made, memory_format)

    return call


def is_plain(meta: Meta) -> bool:
    """Whether a tensor is local, with data, and nothing sees how one like it is made."""
    return meta.placement is None and meta.has_data and interpreter.get_current() is None


def plain_meta(shape: Shape, dtype: object, layout: TypedLayout) -> Meta | None:
    """The meta of a new local tensor with data, if nothing else is asked for.

    None otherwise, and while ops are captured. `make` takes most of its time for what is left out.
    """
    device = layout.get("device")
    if len(layout) > ("device" in layout) or isinstance(device, PlacedDevice):
        return None
    if not isinstance(dtype, torch.dtype) or layout_of_new(device) is not None:
        return None
    if interpreter.get_current() is not None:
        return None
    return _plain_meta(shape, dtype, read_device(device))


@lru_cache(maxsize=4096)
def _plain_meta(shape: Shape, dtype: torch.dtype, device: torch.device) -> Meta | None:
    if min(shape, default=0) < 0:
        return None
    meta = Meta.of(shape, dtype, device=device)
    return meta if meta.has_data else None


def _run(meta: Meta, maker: Maker, requires_grad: bool) -> Tensor:
    x = from_shards(shards_of(meta, maker), meta)
    x.shared = len(x.shards) > 1
    if provenance.state.on and meta.placement is not None:
        values = vars(maker).get("values", ())
        provenance.record(x.shards, provenance.mark(f"new {meta!r}"), *values)
    if requires_grad:
        set_requires_grad(x, True)
    return x


def shards_of(meta: Meta, maker: Maker) -> tuple[torch.Tensor, ...]:
    """The shards of a new tensor that this process owns; equal shards are created once."""
    if not meta.has_data:
        return blank_shards(meta)
    if meta.placement is None:
        assert meta.device is not None
        return (maker(((0,) * meta.ndim, tuple(meta.shape)), meta.device),)
    made: dict[tuple[Box, bool, torch.device], torch.Tensor] = {}
    shards = []
    for position in meta.placement.owned:
        coordinate = meta.placement.coordinate(position)
        box = meta.box(position)
        # A partial sum keeps the value on the first coordinate and zeros elsewhere.
        counts = all(
            index == 0 or sbp.kind != "P"
            for index, sbp in zip(coordinate, meta.nd_sbp, strict=True)
        )
        device = meta.placement.device(meta.placement.flat_ranks[position])
        key = (box, counts, device)
        if key not in made:
            part = maker(box, device)
            made[key] = part if counts else torch.zeros_like(part)
        shards.append(made[key])
    return tuple(shards)


def read_size(size: tuple[Dims, ...], what: str, layout: SizedLayout | None = None) -> Shape:
    """The sizes of `f(2, 3)`, `f((2, 3))` or, where `layout` has the keywords, `f(size=(2, 3))`."""
    if not size and layout and "size" in layout:
        size = (layout.pop("size"),)
    entries = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    sizes = []
    for entry in entries:
        if type(entry) is int:
            sizes.append(entry)
            continue
        if isinstance(entry, bool) or not isinstance(entry, (int, np.integer)):
            raise OnefoldTypeError(f"{what}: sizes must be integers, but got {entries!r}")
        sizes.append(int(entry))
    return tuple(sizes)


# Constants.


@register_function
def full(
    size: Dims,
    fill_value: Tensor | NumberLike,
    *,
    out: Tensor | None = None,
    **layout: Unpack[TypedLayout],
) -> Tensor:
    """A tensor of shape `size` filled with one value (dtype by the value, as in torch)."""
    if out is not None:
        return give_to(out, full(size, fill_value, **made_for(out, layout)))
    value: Any = item(fill_value) if isinstance(fill_value, Tensor) else fill_value
    if layout.get("dtype") is None:
        like = fill_value if isinstance(fill_value, Tensor) else torch.full((), value)
        layout["dtype"] = like.dtype
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return _made_by(torch.full, read_size(sizes, "full"), layout, value)


@register_function
def zeros(*sizes: Dims, out: Tensor | None = None, **layout: Unpack[SizedLayout]) -> Tensor:
    """A tensor of zeros.

    `placement=` and `sbp=` make it global, `device=` places a local one; `requires_grad=`.

    >>> import onefold as flow
    >>> flow.zeros(2, 2, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(0)).numpy()
    array([[0., 0.],
           [0., 0.]], dtype=float32)
    """
    if out is not None:
        return give_to(out, zeros(*sizes, **made_for(out, layout)))
    return _made_by(torch.zeros, read_size(sizes, "zeros", layout), layout)


@register_function
def ones(*sizes: Dims, out: Tensor | None = None, **layout: Unpack[SizedLayout]) -> Tensor:
    """A tensor of ones; see `zeros`."""
    if out is not None:
        return give_to(out, ones(*sizes, **made_for(out, layout)))
    return _made_by(torch.ones, read_size(sizes, "ones", layout), layout)


@register_function
def empty(*sizes: Dims, out: Tensor | None = None, **layout: Unpack[SizedLayout]) -> Tensor:
    """An uninitialized tensor; see `zeros`."""
    if out is not None:
        return give_to(out, empty(*sizes, **made_for(out, layout)))
    return _made_by(torch.empty, read_size(sizes, "empty", layout), layout)


def _made_by(
    function: Callable[..., torch.Tensor], shape: Shape, layout: TypedLayout, *values: NumberLike
) -> Tensor:
    """The maker of shards by a torch function of a shape and values."""
    dtype = layout.pop("dtype", None) or torch.get_default_dtype()
    placed: Layout = layout
    plain = plain_meta(shape, dtype, layout)
    if plain is not None:
        return from_shards((function(shape, *values, dtype=dtype, device=plain.device),), plain)

    def maker(box: Box, device: torch.device) -> torch.Tensor:
        return function(box[1], *values, dtype=dtype, device=device)

    if provenance.state.on:
        vars(maker)["values"] = values
    return make(function.__name__, shape, dtype, maker, **placed)


# From data.


@register_function
def tensor(
    data: object,
    *,
    dtype: torch.dtype | None = None,
    device: DeviceLike | None = None,
    placement: Placement | None = None,
    sbp: SbpLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor with a copy of `data` (nested lists, numbers, numpy arrays, torch tensors).

    With `placement` and `sbp`, `data` is the global value and each rank keeps its part; every
    process must pass the same data.

    >>> import onefold as flow
    >>> x = flow.tensor([[1, 2], [3, 4]], placement=flow.placement("cpu", [0, 1]),
    ...                 sbp=flow.sbp.split(0))
    >>> x.shards[1]
    tensor([[3, 4]])
    """
    if isinstance(data, Tensor):
        if data.is_global and placement is None:
            raise MixedTensorsError(
                "tensor(data) with a global tensor as data needs placement= and sbp=; use "
                "clone() for a copy in the same layout, to_local() for this rank's part"
            )
        data = whole(data)
    if isinstance(data, torch.Tensor):
        value = data.detach().to(dtype=dtype, copy=True)
        if device is None and placement is None:
            device = value.device
    else:
        value = _from_nested(data, dtype)
    if placement is None and sbp is None and not requires_grad:
        asked: TypedLayout = {} if device is None else {"device": device}
        plain = plain_meta(value.shape, value.dtype, asked)
        if plain is not None and plain.device == value.device:
            return from_shards((value.contiguous(),), plain)

    def maker(box: Box, on: torch.device) -> torch.Tensor:
        part = value
        for dim, (start, size) in enumerate(zip(*box, strict=True)):
            part = part.narrow(dim, start, size)
        return part.contiguous().to(on)

    if provenance.state.on and placement is not None:
        vars(maker)["values"] = (provenance.fingerprint(value),)
    return make(
        "tensor",
        value.shape,
        value.dtype,
        maker,
        device=device,
        placement=placement,
        sbp=sbp,
        requires_grad=requires_grad,
    )


def _from_nested(data: object, dtype: torch.dtype | None) -> torch.Tensor:
    """A torch tensor of numbers in nested lists, which may be tensors of one element."""
    try:
        return torch.tensor(data, dtype=dtype, device="cpu")
    except (ValueError, TypeError, RuntimeError) as error:
        if not _holds_tensor(data):
            text = f"tensor(data): {error} (got {type(data).__name__})"
            raise OnefoldTypeError(text) from error
    plain = _in_torch(data)
    try:
        return torch.tensor(plain, dtype=dtype, device="cpu")
    except (ValueError, TypeError, RuntimeError) as error:
        raise OnefoldTypeError(
            f"tensor(data): {error} (got {type(data).__name__}). To join tensors of several "
            "elements, use onefold.stack(...) or onefold.cat(...)"
        ) from error


def _holds_tensor(data: object, dims: int = 64) -> bool:
    """Whether nested lists, at most `dims` deep (torch has 64), contain one of our tensors."""
    if isinstance(data, list | tuple):
        return dims > 0 and any(_holds_tensor(each, dims - 1) for each in data)
    return isinstance(data, Tensor)


def _in_torch(data: object) -> object:
    if isinstance(data, list | tuple):
        return [_in_torch(each) for each in data]
    if isinstance(data, Tensor):
        return whole(data, "Join tensors with onefold.stack or onefold.cat there")
    return data


@register_function
def eye(
    n: int, m: int | None = None, *, out: Tensor | None = None, **layout: Unpack[TypedLayout]
) -> Tensor:
    """Ones on the diagonal, zeros elsewhere; n rows, m (default n) columns."""
    if out is not None:
        return give_to(out, eye(n, m, **made_for(out, layout)))
    kind = layout.pop("dtype", None) or torch.get_default_dtype()
    placed: Layout = layout
    shape = (n, n if m is None else m)
    plain = plain_meta(shape, kind, layout)
    if plain is not None:
        return from_shards((torch.eye(*shape, dtype=kind, device=plain.device),), plain)

    def maker(box: Box, device: torch.device) -> torch.Tensor:
        (row, column), (height, width) = box
        part = torch.zeros(height, width, dtype=kind, device=device)
        low, high = max(row, column), min(row + height, column + width)
        if high > low:
            index = torch.arange(low, high, device=device)
            part[index - row, index - column] = 1
        return part

    return make("eye", shape, kind, maker, **placed)
