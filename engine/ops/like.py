"""Creation after the model of another tensor: zeros_like, new_zeros and related ops."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, Unpack, cast

import torch

from ...errors import OnefoldTypeError
from ...kernels import pointwise_ref as elementwise
from .. import interpreter
from ..argument_types import Dims, Layout, TypedLayout
from ..dispatcher import unary
from ..generator import Generator
from ..global_mode import OwnDevice
from ..meta import Meta, Shape
from ..names import register_as, register_function
from ..op import Kernel, Local, Op
from ..placed_device import PlacedDevice
from ..placement import Placement
from ..sbp import broadcast, partial_max, partial_min, partial_sum, without_partial
from ..signature import Axis, Rule, Signature, pointwise_of
from ..tensor import Tensor, from_shards
from .creation import Size, empty, full, is_plain, ones, read_size, tensor, zeros
from .memory_formats import is_last, memory_format_of
from .pointwise import Entry, Operand, fitting
from .random_creation import rand, randint, randn


class ConstantAttributes(NamedTuple):
    """The number."""

    value: float


class ConstantLike(Op):
    """One number in the input's shape and dtype, broadcast where the input is partial."""

    name = "constant_like"
    attributes = ConstantAttributes
    order = "row-major"
    like = (0,)
    saves = ()
    differentiable = False

    def rule(self, axis: Axis, x: Meta, attrs: ConstantAttributes) -> Rule:
        partials = (partial_sum, partial_max, partial_min)
        passes = [Signature((partial,), (broadcast,)) for partial in partials]
        return fitting((*pointwise_of([x]), *passes), [x])

    def bind(self, local: Local, attrs: ConstantAttributes) -> Kernel:
        value = attrs.value
        if local.placement is not None:
            shape = local.output_shape()
            filled = local.pick(elementwise.filled)
            return lambda x: filled(x, shape, value)
        full_like = local.pick(torch.full_like)
        return lambda x: full_like(x, value)


constant_like = unary(ConstantLike())


@register_function
def ones_like_whole(x: Tensor) -> Tensor:
    """Ones in the shape, dtype and layout of `x`, broadcast where `x` is partial.

    The gradient with which backward starts: each addend of a partial sum counts in full.
    """
    return constant_like(x, 1)


def layout_like(x: Tensor, layout: TypedLayout) -> TypedLayout:
    """The dtype and layout arguments for a tensor like x: x's own, unless others are given.

    Constants made like a partial tensor are broadcast.
    """
    layout["dtype"] = layout.get("dtype") or x.dtype
    if layout.get("device") is not None:
        return layout if x.is_local else _on_type(x, layout)
    if x.is_local:
        given = layout.get("placement") is not None or layout.get("sbp") is not None
        return layout if given else {**layout, "device": OwnDevice(x.device)}
    return {"placement": x.placement, "sbp": without_partial(x.sbp), **layout}


def _shaped_like(x: Tensor, layout: TypedLayout) -> dict[str, Any]:
    """`layout_like` for a tensor of the same shape, which lies in memory as x does."""
    found: dict[str, Any] = {**layout_like(x, layout)}
    if found.get("memory_format") in (None, torch.preserve_format):
        last = memory_format_of(x)
        if last is not None:
            found["memory_format"] = last
    return found


def _on_type(x: Tensor, layout: TypedLayout) -> TypedLayout:
    """The layout of a global tensor for which a device is given, which sets the device type.

    As in `x.to(device)` the ranks stay, unless it is the device of another global tensor. Raises
    OnefoldTypeError together with placement.
    """
    device = layout.pop("device")
    if layout.get("placement") is not None:
        raise OnefoldTypeError(
            f"got both device={str(device)!r} and placement={layout['placement']!r}; give one"
        )
    if isinstance(device, PlacedDevice):
        placement = device.placement
    else:
        placement = Placement(torch.device(device or "cpu").type, x.placement.ranks)
    same = placement.ndim == x.placement.ndim
    nd_sbp = without_partial(x.sbp) if same else (broadcast,) * placement.ndim
    return {"placement": placement, "sbp": nd_sbp, **layout}


class _Like(Protocol):
    def __call__(
        self, input: Tensor, *, dtype: torch.dtype | None = None, **layout: Unpack[Layout]
    ) -> Tensor: ...


def _like(make: Entry, what: str, value: float | None = None) -> _Like:
    """`make`, a function of sizes, with the shape of a tensor; `value` is that of its elements."""

    def call(
        input: Tensor, *, dtype: torch.dtype | None = None, **layout: Unpack[Layout]
    ) -> Tensor:
        plain = not layout and (dtype is None or dtype is input.meta.dtype)
        if plain and interpreter.get_current() is None:
            if value is not None:
                return constant_like(input, value)
            meta = input.meta
            if meta.placement is None and not is_last(input):
                return from_shards((torch.empty_like(input.shards[0]),), meta)
        return make(input.shape, **_shaped_like(input, {"dtype": dtype, **layout}))

    doc = f"{what} in the shape, dtype and layout of input (partial becomes broadcast)."
    return register_as(f"{make.__name__}_like", call, doc)


zeros_like = _like(zeros, "Zeros", 0)
ones_like = _like(ones, "Ones", 1)
empty_like = _like(empty, "Unset values")


def _random_like(make: Entry, what: str) -> Callable[..., Tensor]:
    """`make`, a function of sizes and a generator, with the shape of a tensor."""

    def call(
        input: Tensor, *, generator: Generator | None = None, **layout: Unpack[TypedLayout]
    ) -> Tensor:
        return make(input.shape, generator=generator, **_shaped_like(input, layout))

    doc = f"{what} in the shape, dtype and layout of input (partial becomes broadcast)."
    return register_as(f"{make.__name__}_like", call, doc)


rand_like = _random_like(rand, "Uniform numbers")
randn_like = _random_like(randn, "Standard normal numbers")


@register_function
def full_like(input: Tensor, fill_value: Operand, **layout: Unpack[TypedLayout]) -> Tensor:
    """One value in the shape, dtype and layout of input (partial becomes broadcast)."""
    return full(input.shape, fill_value, **_shaped_like(input, layout))


@register_function
def randint_like(
    input: Tensor,
    low: int = 0,
    high: int | None = None,
    *,
    generator: Generator | None = None,
    **layout: Unpack[TypedLayout],
) -> Tensor:
    """Integers in [low, high), laid out as input (partial becomes broadcast); see `randint`."""
    if high is None:
        low, high = 0, low
    shape = input.shape
    return randint(low, high, shape, generator=generator, **_shaped_like(input, layout))


# Of the same kind as another tensor, in another shape; replicated where that one is global.


def replicated_like(x: Tensor) -> Layout:
    """The layout of a tensor that is replicated on the ranks of x, or on its device."""
    if x.is_local:
        return {"device": OwnDevice(x.meta.device)}
    return {"placement": x.placement, "sbp": (broadcast,) * x.placement.ndim}


def layout_for_new(x: Tensor, layout: TypedLayout) -> TypedLayout:
    """The dtype and layout of a new tensor of any shape: those given, else x's, replicated."""
    given = {key: value for key, value in layout.items() if value is not None}
    if x.is_global and not given.keys() & {"placement", "sbp"}:
        given["sbp"] = (broadcast,) * x.placement.ndim
    return layout_like(x, cast("TypedLayout", given))


def _register_new(make: Entry, what: str) -> Callable[..., Tensor]:
    """The function `make` of sizes as a method of a tensor."""
    function: Callable[..., torch.Tensor] = getattr(torch, make.__name__)

    def call(self: Tensor, *size: Dims, **layout: Unpack[TypedLayout]) -> Tensor:
        if not layout and is_plain(self.meta):
            return _beside(self, function, read_size(size, function.__name__))
        return make(*size, **layout_for_new(self, layout))

    doc = f"{what} of another shape with self's dtype, device or (broadcast) placement."
    return register_as(f"new_{make.__name__}", call, doc)


new_zeros = _register_new(zeros, "Zeros")
new_ones = _register_new(ones, "Ones")
new_empty = _register_new(empty, "Unset values")


def _beside(
    x: Tensor, function: Callable[..., torch.Tensor], shape: Shape, *values: object
) -> Tensor:
    """What a function of torch makes of a shape and values, in the dtype and on the device of x."""
    meta = _in_shape(x.meta, shape)
    return from_shards((function(shape, *values, dtype=meta.dtype, device=meta.device),), meta)


_in_shape = lru_cache(maxsize=4096)(Meta.like)


@register_function
def new_full(
    self: Tensor, size: Size, fill_value: Operand, **layout: Unpack[TypedLayout]
) -> Tensor:
    """One value in another shape with self's dtype, device or (broadcast) placement."""
    if not layout and not isinstance(fill_value, Tensor) and is_plain(self.meta):
        return _beside(self, torch.full, read_size((size,), "new_full"), fill_value)
    return full(size, fill_value, **layout_for_new(self, layout))


@register_function
def new_tensor(self: Tensor, data: object, **layout: Unpack[TypedLayout]) -> Tensor:
    """A tensor of `data` with self's dtype, device or (broadcast) placement."""
    return tensor(data, **layout_for_new(self, layout))
