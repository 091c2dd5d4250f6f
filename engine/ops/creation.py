"""Creation of tensors. Each rank creates only its own shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ...errors import (
    MixedTensorsError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    PlacementError,
    SbpError,
)
from .. import interpreter
from ..convert import read_device, read_layout
from ..grad_attributes import set_requires_grad
from ..meta import Box, Meta
from ..names import register_function
from ..placement import Placement
from ..sbp import short
from ..tensor import Tensor
from ..values import item, whole

Size = Sequence[int]
# Makes the part of the logical tensor that lies in a box: (box, device) -> torch tensor.
Maker = Callable[[Box, torch.device], torch.Tensor]


class Source:
    """A creation as an op: what a capturing interpreter sees, and how eager runs it."""

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
    device: Any = None,
    placement: Placement | None = None,
    sbp: Any = None,
    requires_grad: bool = False,
    is_random: bool = False,
    **unknown: Any,
) -> Tensor:
    """A tensor of this shape and layout whose shards `maker` makes."""
    if unknown:
        raise OnefoldTypeError(
            f"{what}() got an unexpected keyword argument {next(iter(unknown))!r}; layouts are "
            "given by device= (local), or placement= and sbp= (global)"
        )
    shape = tuple(shape)
    if any(size < 0 for size in shape):
        raise OnefoldRuntimeError(f"{what}: sizes must be >= 0, but got shape {shape}")
    if placement is None:
        if sbp is not None:
            raise PlacementError(
                f"{what}: got sbp={sbp!r} without placement; give both, for instance "
                'placement=flow.placement("cpu", ranks=[0, 1])'
            )
        meta = Meta.of(shape, dtype, device=read_device(device))
    else:
        if device is not None:
            raise OnefoldTypeError(
                f"{what}: got both device={device!r} and placement={placement!r}; a global tensor "
                "has a placement, a local one a device"
            )
        placement, nd_sbp = read_layout(placement, sbp, shape, what)
        if is_random and any(s.is_partial for s in nd_sbp):
            raise SbpError(
                f"{what}: random source op only support broadcast or split, but sbp is "
                f"{short(nd_sbp)}; create it so and convert it with to_global"
            )
        meta = Meta.of(shape, dtype, placement, nd_sbp)
    if interpreter.current is not None:
        return interpreter.current.run(_run, Source(what), (meta, maker, requires_grad))  # type: ignore[no-any-return]
    return _run(meta, maker, requires_grad)


def _run(meta: Meta, maker: Maker, requires_grad: bool) -> Tensor:
    x = Tensor(shards_of(meta, maker), meta)
    x.shared = len(x.shards) > 1
    if requires_grad:
        set_requires_grad(x, True)
    return x


def shards_of(meta: Meta, maker: Maker) -> tuple[torch.Tensor, ...]:
    """The parts of a new tensor on the ranks that this process owns; each distinct one once."""
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


def read_size(
    size: tuple[Any, ...], what: str, layout: dict[str, Any] | None = None
) -> tuple[int, ...]:
    """The sizes of `f(2, 3)`, `f((2, 3))` or, where `layout` has the keywords, `f(size=(2, 3))`."""
    if not size and layout and "size" in layout:
        size = (layout.pop("size"),)
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        size = tuple(size[0])
    for entry in size:
        if isinstance(entry, bool) or not isinstance(entry, (int, np.integer)):
            raise OnefoldTypeError(f"{what}: sizes must be integers, but got {size!r}")
    return tuple(int(entry) for entry in size)


# Constants.


@register_function
def full(size: Size, fill_value: Any, *, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """A tensor of shape `size` filled with one value (dtype by the value, as in torch)."""
    if isinstance(fill_value, Tensor):
        dtype = dtype or fill_value.dtype
        fill_value = item(fill_value)
    if dtype is None:
        dtype = torch.full((), fill_value).dtype
    return make(
        "full",
        read_size((size,) if isinstance(size, int) else tuple(size), "full"),
        dtype,
        lambda box, device: torch.full(box[1], fill_value, dtype=dtype, device=device),
        **layout,
    )


@register_function
def zeros(*size: Any, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """A tensor of zeros.

    `placement=` and `sbp=` make it global, `device=` places a local one; `requires_grad=`.

    >>> import onefold as flow
    >>> flow.zeros(2, 2, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(0)).numpy()
    array([[0., 0.],
           [0., 0.]], dtype=float32)
    """
    return _constant("zeros", 0, size, dtype, layout)


@register_function
def ones(*size: Any, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """A tensor of ones; see `zeros`."""
    return _constant("ones", 1, size, dtype, layout)


@register_function
def empty(*size: Any, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """A tensor whose values are not set; see `zeros`."""
    dtype = dtype or torch.get_default_dtype()
    return make(
        "empty",
        read_size(size, "empty", layout),
        dtype,
        lambda box, device: torch.empty(box[1], dtype=dtype, device=device),
        **layout,
    )


def _constant(
    what: str, value: int, size: tuple[Any, ...], dtype: torch.dtype | None, layout: dict[str, Any]
) -> Tensor:
    dtype = dtype or torch.get_default_dtype()
    return make(
        what,
        read_size(size, what, layout),
        dtype,
        lambda box, device: torch.full(box[1], value, dtype=dtype, device=device),
        **layout,
    )


# From data.


@register_function
def tensor(
    data: Any,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    placement: Placement | None = None,
    sbp: Any = None,
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
    else:
        try:
            value = torch.tensor(data, dtype=dtype)
        except (ValueError, TypeError, RuntimeError) as error:
            raise OnefoldTypeError(f"tensor(data): {error} (got {type(data).__name__})") from error

    def maker(box: Box, on: torch.device) -> torch.Tensor:
        part = value
        for dim, (start, size) in enumerate(zip(*box, strict=True)):
            part = part.narrow(dim, start, size)
        return part.contiguous().to(on)

    return make(
        "tensor",
        value.shape,
        value.dtype,
        maker,
        device=device or (value.device if placement is None else None),
        placement=placement,
        sbp=sbp,
        requires_grad=requires_grad,
    )
