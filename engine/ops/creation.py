"""Creation: tensors made from nothing; each rank makes only its own shard."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
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
from ...kernels import random as random_kernels
from .. import interp
from ..convert import read_layout
from ..generator import Generator, default_generator
from ..meta import Box, Meta
from ..names import named, names
from ..placement import Placement
from ..sbp import as_nd_sbp, broadcast, short
from ..tensor import Tensor
from ..values import whole

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
) -> Tensor:
    """A tensor of this shape and layout whose shards `maker` makes."""
    shape = tuple(shape)
    if any(size < 0 for size in shape):
        raise OnefoldRuntimeError(f"{what}: sizes must be >= 0, but got shape {shape}")
    if placement is None:
        if sbp is not None:
            raise PlacementError(
                f"{what}: got sbp={sbp!r} without placement; give both, for instance "
                'placement=flow.placement("cpu", ranks=[0, 1])'
            )
        on = torch.device(device or "cpu")
        meta = Meta.of(shape, dtype, device=on)
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
    if interp.current is not None:
        return interp.current.run(_run, Source(what), (meta, maker, requires_grad))  # type: ignore[no-any-return]
    return _run(meta, maker, requires_grad)


def _run(meta: Meta, maker: Maker, requires_grad: bool) -> Tensor:
    x = Tensor(_shards(meta, maker), meta)
    x.shared = len(x.shards) > 1
    if requires_grad:
        names.set_requires_grad(x, True)
    return x


def _shards(meta: Meta, maker: Maker) -> tuple[torch.Tensor, ...]:
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


def _read_size(size: tuple[Any, ...], what: str) -> tuple[int, ...]:
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        size = tuple(size[0])
    for entry in size:
        if isinstance(entry, bool) or not isinstance(entry, (int, np.integer)):
            raise OnefoldTypeError(f"{what}: sizes must be integers, but got {size!r}")
    return tuple(int(entry) for entry in size)


# Constants.


@named
def full(size: Size, fill_value: Any, *, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """A tensor of shape `size` filled with one value (dtype by the value, as in torch)."""
    if isinstance(fill_value, Tensor):
        dtype = dtype or fill_value.dtype
        fill_value = names.item(fill_value)
    if dtype is None:
        dtype = torch.full((), fill_value).dtype
    return make(
        "full",
        _read_size((size,) if isinstance(size, int) else tuple(size), "full"),
        dtype,
        lambda box, device: torch.full(box[1], fill_value, dtype=dtype, device=device),
        **layout,
    )


@named
def zeros(*size: Any, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """A tensor of zeros.

    `placement=` and `sbp=` make it global, `device=` places a local one; `requires_grad=`.

    >>> import onefold as flow
    >>> flow.zeros(2, 2, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(0)).numpy()
    array([[0., 0.],
           [0., 0.]], dtype=float32)
    """
    return _constant("zeros", 0, size, dtype, layout)


@named
def ones(*size: Any, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """A tensor of ones; see `zeros`."""
    return _constant("ones", 1, size, dtype, layout)


@named
def empty(*size: Any, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """A tensor whose values are not set; see `zeros`."""
    dtype = dtype or torch.get_default_dtype()
    return make(
        "empty",
        _read_size(size, "empty"),
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
        _read_size(size, what),
        dtype,
        lambda box, device: torch.full(box[1], value, dtype=dtype, device=device),
        **layout,
    )


@named
def arange(
    start: Any, end: Any = None, step: Any = 1, *, dtype: torch.dtype | None = None, **layout: Any
) -> Tensor:
    """start, start + step, ... below end (integers give int64, as in torch)."""
    if end is None:
        start, end = 0, start
    if step == 0:
        raise OnefoldRuntimeError("arange: step must be nonzero")
    if (end - start) * step < 0:
        raise OnefoldRuntimeError(
            f"arange: upper bound and lower bound inconsistent with step sign: start={start}, "
            f"end={end}, step={step}"
        )
    whole_numbers = all(isinstance(v, (int, np.integer)) for v in (start, end, step))
    kind = dtype or (torch.int64 if whole_numbers else torch.get_default_dtype())
    count = max(0, math.ceil((end - start) / step))
    computed = torch.int64 if whole_numbers else torch.float64

    def maker(box: Box, device: torch.device) -> torch.Tensor:
        first, size = box[0][0], box[1][0]
        index = torch.arange(first, first + size, dtype=computed, device=device)
        return (start + index * step).to(kind)

    return make("arange", (count,), kind, maker, **layout)


@named
def linspace(
    start: float, end: float, steps: int, *, dtype: torch.dtype | None = None, **layout: Any
) -> Tensor:
    """`steps` evenly spaced values from start to end, both included."""
    kind = dtype or torch.get_default_dtype()

    def maker(box: Box, device: torch.device) -> torch.Tensor:
        first, size = box[0][0], box[1][0]
        return torch.linspace(start, end, steps, dtype=kind, device=device)[first : first + size]

    return make("linspace", (steps,), kind, maker, **layout)


@named
def eye(n: int, m: int | None = None, *, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """Ones on the diagonal, zeros elsewhere; n rows, m (default n) columns."""
    kind = dtype or torch.get_default_dtype()

    def maker(box: Box, device: torch.device) -> torch.Tensor:
        (row, column), (height, width) = box
        part = torch.zeros(height, width, dtype=kind, device=device)
        low, high = max(row, column), min(row + height, column + width)
        if high > low:
            index = torch.arange(low, high, device=device)
            part[index - row, index - column] = 1
        return part

    return make("eye", (n, n if m is None else m), kind, maker, **layout)


# From data.


@named
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


# Random sources: Philox by logical index, so that layouts do not change the numbers.


def random_source(
    what: str,
    shape: Size,
    dtype: torch.dtype,
    fill: Callable[..., torch.Tensor],
    generator: Generator | None,
    layout: dict[str, Any],
) -> Tensor:
    """A random tensor: `fill` is a box-filling kernel of kernels/random with its parameters."""
    source = generator or default_generator
    shape = tuple(shape)
    call = source.next_call()
    seed = source.initial_seed()

    def maker(box: Box, device: torch.device) -> torch.Tensor:
        return fill(shape, *box, seed=seed, call=call, dtype=dtype, device=device)

    try:
        return make(what, shape, dtype, maker, is_random=True, **layout)
    except Exception:
        source.set_state((seed, call))  # a bad call changes nothing
        raise


@named
def rand(
    *size: Any, dtype: torch.dtype | None = None, generator: Generator | None = None, **layout: Any
) -> Tensor:
    """Uniform numbers in [0, 1); the same for every layout.

    >>> import onefold as flow
    >>> p = flow.placement("cpu", [0, 1])
    >>> flow.manual_seed(1); a = flow.rand(4, 3, placement=p, sbp=flow.sbp.split(0))
    <onefold.engine.generator.Generator object at ...>
    >>> flow.manual_seed(1); b = flow.rand(4, 3)
    <onefold.engine.generator.Generator object at ...>
    >>> bool((a.numpy() == b.numpy()).all())
    True
    """
    kind = dtype or torch.get_default_dtype()
    return random_source(
        "rand", _read_size(size, "rand"), kind, random_kernels.uniform, generator, layout
    )


@named
def randn(
    *size: Any, dtype: torch.dtype | None = None, generator: Generator | None = None, **layout: Any
) -> Tensor:
    """Standard normal numbers; the same for every layout."""
    kind = dtype or torch.get_default_dtype()
    return random_source(
        "randn", _read_size(size, "randn"), kind, random_kernels.normal, generator, layout
    )


@named
def normal(
    mean: float,
    std: float,
    size: Size,
    *,
    dtype: torch.dtype | None = None,
    generator: Generator | None = None,
    **layout: Any,
) -> Tensor:
    """Normal numbers of this mean and standard deviation."""
    kind = dtype or torch.get_default_dtype()
    fill = partial(random_kernels.normal, mean=mean, std=std)
    return random_source("normal", _read_size((size,), "normal"), kind, fill, generator, layout)


@named
def randint(
    low: int,
    high: Any = None,
    size: Any = None,
    *,
    dtype: torch.dtype | None = None,
    generator: Generator | None = None,
    **layout: Any,
) -> Tensor:
    """Integers in [low, high); `randint(high, size)` starts at 0."""
    if size is None:
        low, high, size = 0, low, high
    kind = dtype or torch.int64
    fill = partial(random_kernels.randint, low=low, high=high)
    return random_source("randint", _read_size((size,), "randint"), kind, fill, generator, layout)


@named
def randperm(
    n: int, *, dtype: torch.dtype = torch.int64, generator: Generator | None = None, **layout: Any
) -> Tensor:
    """A random permutation of 0 .. n-1, the same for every layout."""

    def fill(shape: Size, offset: Size, size: Size, **draw: Any) -> torch.Tensor:
        order = random_kernels.randperm(n, **draw)
        return order[offset[0] : offset[0] + size[0]]

    return random_source("randperm", (n,), dtype, fill, generator, layout)


# Like another tensor.


def _layout_of(x: Tensor, layout: dict[str, Any]) -> dict[str, Any]:
    """The layout arguments for a tensor like x: x's own, unless others are given.

    Constants made like a partial tensor are broadcast.
    """
    if "placement" in layout or "sbp" in layout or "device" in layout:
        if "device" not in layout and x.is_global:
            layout.setdefault("placement", x.placement)
            layout.setdefault("sbp", x.sbp)
        return layout
    if x.meta.placement is None:
        return {"device": x.meta.device, **layout}
    nd_sbp = tuple(broadcast if s.is_partial else s for s in x.meta.nd_sbp)
    return {"placement": x.meta.placement, "sbp": as_nd_sbp(nd_sbp, len(nd_sbp)), **layout}


@named
def zeros_like(x: Tensor, *, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """Zeros in the shape, dtype and layout of x (partial becomes broadcast)."""
    return zeros(x.shape, dtype=dtype or x.dtype, **_layout_of(x, layout))


@named
def ones_like(x: Tensor, *, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """Ones in the shape, dtype and layout of x (partial becomes broadcast)."""
    return ones(x.shape, dtype=dtype or x.dtype, **_layout_of(x, layout))


@named
def empty_like(x: Tensor, *, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """Unset values in the shape, dtype and layout of x (partial becomes broadcast)."""
    return empty(x.shape, dtype=dtype or x.dtype, **_layout_of(x, layout))


@named
def full_like(
    x: Tensor, fill_value: Any, *, dtype: torch.dtype | None = None, **layout: Any
) -> Tensor:
    """One value in the shape, dtype and layout of x (partial becomes broadcast)."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, **_layout_of(x, layout))


@named
def rand_like(x: Tensor, *, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """Uniform numbers in the shape, dtype and layout of x (partial becomes broadcast)."""
    return rand(x.shape, dtype=dtype or x.dtype, **_layout_of(x, layout))


@named
def randn_like(x: Tensor, *, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """Standard normal numbers in the shape, dtype and layout of x (partial becomes broadcast)."""
    return randn(x.shape, dtype=dtype or x.dtype, **_layout_of(x, layout))


@named
def randint_like(
    x: Tensor, low: int, high: int | None = None, *, dtype: torch.dtype | None = None, **layout: Any
) -> Tensor:
    """Integers in [low, high) in the shape, dtype and layout of x (partial becomes broadcast)."""
    if high is None:
        low, high = 0, low
    return randint(low, high, x.shape, dtype=dtype or x.dtype, **_layout_of(x, layout))
