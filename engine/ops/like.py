"""Creation after the model of another tensor: zeros_like, new_zeros and related ops."""

from __future__ import annotations

from typing import NamedTuple, Protocol, Unpack, cast

import torch

from ...kernels import pointwise_ref as elementwise
from .. import interpreter
from ..argument_types import Dims, Layout, TypedLayout
from ..dispatcher import unary
from ..global_mode import OwnDevice
from ..meta import Meta
from ..names import register_as, register_function
from ..op import Kernel, Local, Op
from ..sbp import broadcast, partial_max, partial_min, partial_sum, without_partial
from ..signature import Axis, Rule, Signature, pointwise_of
from ..tensor import Tensor
from .creation import Size, empty, full, ones, tensor, zeros
from .pointwise import Entry, Operand, fitting
from .random_creation import rand, randint, randn


class ConstantAttributes(NamedTuple):
    """The number."""

    value: float


class ConstantLike(Op):
    """One number, in the input's shape and dtype: broadcast where the input is partial."""

    name = "constant_like"
    attributes = ConstantAttributes
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


def _layout_of(x: Tensor, layout: TypedLayout) -> TypedLayout:
    """The dtype and layout arguments for a tensor like x: x's own, unless others are given.

    Constants made like a partial tensor are broadcast.
    """
    layout["dtype"] = layout.get("dtype") or x.dtype
    if layout.get("device") is not None:
        return layout
    if x.is_local:
        given = layout.get("placement") is not None or layout.get("sbp") is not None
        return layout if given else {**layout, "device": OwnDevice(x.device)}
    return {"placement": x.placement, "sbp": without_partial(x.sbp), **layout}


class _Like(Protocol):
    def __call__(
        self, x: Tensor, *, dtype: torch.dtype | None = None, **layout: Unpack[Layout]
    ) -> Tensor: ...


def _like(make: Entry, what: str, value: float | None = None) -> _Like:
    """The function `make` of sizes, with the shape of a tensor; `value` is that of its elements."""

    def call(x: Tensor, *, dtype: torch.dtype | None = None, **layout: Unpack[Layout]) -> Tensor:
        plain = not layout and (dtype is None or dtype is x.meta.dtype)
        if plain and value is not None and interpreter.current is None:
            return constant_like(x, value)
        return make(x.shape, **_layout_of(x, {"dtype": dtype, **layout}))

    doc = f"{what} in the shape, dtype and layout of x (partial becomes broadcast)."
    return register_as(f"{make.__name__}_like", call, doc)


zeros_like = _like(zeros, "Zeros", 0)
ones_like = _like(ones, "Ones", 1)
empty_like = _like(empty, "Unset values")
rand_like = _like(rand, "Uniform numbers")
randn_like = _like(randn, "Standard normal numbers")


@register_function
def full_like(x: Tensor, fill_value: Operand, **layout: Unpack[TypedLayout]) -> Tensor:
    """One value in the shape, dtype and layout of x (partial becomes broadcast)."""
    return full(x.shape, fill_value, **_layout_of(x, layout))


@register_function
def randint_like(
    x: Tensor, low: int, high: int | None = None, **layout: Unpack[TypedLayout]
) -> Tensor:
    """Integers in [low, high) in the shape, dtype and layout of x (partial becomes broadcast)."""
    if high is None:
        low, high = 0, low
    return randint(low, high, x.shape, **_layout_of(x, layout))


# Of the same kind as another tensor, in another shape; replicated where that one is global.


def whole_beside(x: Tensor) -> Layout:
    """Where x is, for a tensor that every rank has the whole of."""
    if x.is_local:
        return {"device": OwnDevice(x.meta.device)}
    return {"placement": x.placement, "sbp": (broadcast,) * x.placement.ndim}


def _beside(x: Tensor, layout: TypedLayout) -> TypedLayout:
    given = {key: value for key, value in layout.items() if value is not None}
    if not given.keys() & {"placement", "sbp", "device"}:
        given = {**whole_beside(x), **given}
    return _layout_of(x, cast("TypedLayout", given))


def _register_new(make: Entry, what: str) -> None:
    """The function `make` of sizes as a method of a tensor."""

    def call(self: Tensor, *size: Dims, **layout: Unpack[TypedLayout]) -> Tensor:
        return make(*size, **_beside(self, layout))

    doc = f"{what} of another shape with self's dtype, device or (broadcast) placement."
    register_as(f"new_{make.__name__}", call, doc)


_register_new(zeros, "Zeros")
_register_new(ones, "Ones")
_register_new(empty, "Unset values")


@register_function
def new_full(
    self: Tensor, size: Size, fill_value: Operand, **layout: Unpack[TypedLayout]
) -> Tensor:
    """One value in another shape with self's dtype, device or (broadcast) placement."""
    return full(size, fill_value, **_beside(self, layout))


@register_function
def new_tensor(self: Tensor, data: object, **layout: Unpack[TypedLayout]) -> Tensor:
    """A tensor of `data` with self's dtype, device or (broadcast) placement."""
    return tensor(data, **_beside(self, layout))
