"""Padding with a constant, or with elements of the tensor (reflect, replicate, circular)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...errors import OnefoldRuntimeError, OnefoldValueError
from ...kernels import pad_repeat_ref as kernels
from ..dispatcher import unary
from ..meta import Meta
from ..names import register_function
from ..sbp import partial_sum
from ..signature import Axis, Rule
from ..tensor import Tensor
from .data_movement import Mover, Places, follows, passes
from .result_shapes import COMMON, are_ints

Pads = tuple[tuple[int, int], ...]  # per dim: elements before and after

MODES = ("constant", "reflect", "replicate", "circular")


def _untouched(pads: Pads) -> list[tuple[int, int]]:
    return [(d, d) for d, both in enumerate(pads) if both == (0, 0)]


class PadConstantAttributes(NamedTuple):
    """The padding at both ends of each dim, and the value."""

    pads: Pads
    value: float


class PadConstant(Mover[PadConstantAttributes]):
    """Dims padded with a number at both ends; negative pads remove elements."""

    name = "pad"
    attributes = PadConstantAttributes
    order = "row-major"
    kernel = staticmethod(kernels.pad_constant)

    def deduce(self, x: Meta, attrs: PadConstantAttributes) -> Meta | None:
        if (
            x.dtype not in COMMON
            or type(attrs.value) not in (int, float)
            or not are_ints(attrs.pads)
        ):
            return None
        shape = [n + a + b for n, (a, b) in zip(x.shape, attrs.pads, strict=True)]
        return x.like(shape) if min(shape, default=1) > 0 else None

    def rule(self, axis: Axis, x: Meta, attrs: PadConstantAttributes) -> Rule:
        passing = [s for s in passes([x]) if not attrs.value or s.inputs[0] is not partial_sum]
        return [*follows(_untouched(attrs.pads)), *passing]

    def gradient(self, dy: Tensor, x: Meta, attrs: PadConstantAttributes) -> Tensor:
        return _pad_constant(dy, tuple((-a, -b) for a, b in attrs.pads), 0)


class PadAttributes(NamedTuple):
    """The padding at both ends of each dim, and the mode."""

    pads: Pads
    mode: str


class PadFromInput(Mover[PadAttributes]):
    """Dims padded with their own elements at both ends."""

    name = "pad_from_input"
    attributes = PadAttributes
    kernel = staticmethod(kernels.pad)

    def infer(self, x: Meta, attrs: PadAttributes) -> Meta:
        return x.like([n + a + b for n, (a, b) in zip(x.shape, attrs.pads, strict=True)])

    def places(self, x: Meta, attrs: PadAttributes) -> Places:
        return _untouched(attrs.pads)

    def gradient(self, dy: Tensor, x: Meta, attrs: PadAttributes) -> Tensor:
        return _pad_grad(dy, *attrs)


class PadGrad(Mover[PadAttributes]):
    """The gradient of PadFromInput."""

    name = "pad_grad"
    attributes = PadAttributes
    flops_per_element = 1.0
    kernel = staticmethod(kernels.pad_grad)

    def infer(self, dy: Meta, attrs: PadAttributes) -> Meta:
        return dy.like([n - a - b for n, (a, b) in zip(dy.shape, attrs.pads, strict=True)])

    def rule(self, axis: Axis, dy: Meta, attrs: PadAttributes) -> Rule:
        return [*follows(_untouched(attrs.pads)), *passes([dy])[:1]]  # sums add, maxima do not

    def gradient(self, dy: Tensor, x: Meta, attrs: PadAttributes) -> Tensor:
        return _pad_from_input(dy, *attrs)


_pad_constant = unary(PadConstant())
_pad_from_input = unary(PadFromInput())
_pad_grad = unary(PadGrad())


@register_function
def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Padding, the last dim first: pad = (left, right, top, bottom, ...), as torch's F.pad.

    `mode` is "constant" (with `value`), "reflect", "replicate" or "circular"; the latter three
    pad the last dims of a tensor with one or two dims more. Raises OnefoldRuntimeError for pads
    that the mode or the sizes do not allow.
    """
    if mode not in MODES:
        raise OnefoldRuntimeError(f"Unrecognized padding mode {mode!r}; use one of {MODES}")
    if len(pad) % 2:
        raise OnefoldRuntimeError(f"Padding length must be divisible by 2, but got {len(pad)}")
    if len(pad) // 2 > input.ndim:
        raise OnefoldRuntimeError(
            f"Padding length should be less than or equal to two times the input dimension but got "
            f"padding length {len(pad)} and input of dimension {input.ndim}"
        )
    both = list(zip(pad[::2], pad[1::2], strict=True))
    pads = (*[(0, 0)] * (input.ndim - len(both)), *reversed(both))
    if mode == "constant":
        return _pad_constant(input, pads, 0 if value is None else value)
    if value is not None and value != 0:
        raise OnefoldValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if input.ndim - len(both) not in (1, 2) or len(both) > 3:
        raise OnefoldRuntimeError(
            f"Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now: mode "
            f"{mode!r} pads the last 1, 2 or 3 dims of a tensor with one or two dims more, but got "
            f"{input.ndim} dims and {len(pad)} pads"
        )
    if mode == "circular" and min(pad, default=0) < 0:  # what is cut off does not come back
        input = _pad_constant(input, tuple([(min(a, 0), min(b, 0)) for a, b in pads]), 0)
        pads = tuple([(max(a, 0), max(b, 0)) for a, b in pads])
    for size, (before, after) in zip(input.shape, pads, strict=True):
        _check_own(size, before, after, mode)
    return _pad_from_input(input, pads, mode)


pad_dims = pad  # where a parameter has that name


@register_function
def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """`pad` with a constant."""
    return pad_dims(input, pad, value=value)


def _check_own(size: int, before: int, after: int, mode: str) -> None:
    """Raise where a dim is too small to be padded with its own elements."""
    if not (before or after):
        return
    if mode == "reflect" and max(before, after) >= size:
        raise OnefoldRuntimeError(
            f"Padding size should be less than the corresponding input dimension, but got: padding "
            f"({before}, {after}) at a dimension of size {size}"
        )
    if mode == "circular" and max(before, after) > size:
        raise OnefoldRuntimeError(
            "Padding value causes wrapping around more than once: padding "
            f"({before}, {after}) at a dimension of size {size}"
        )
    if not size or size + before + after <= 0:
        raise OnefoldRuntimeError(
            f"Expected a non-empty dimension to pad in mode {mode!r}, but its size is {size} and "
            f"the padding ({before}, {after})"
        )
