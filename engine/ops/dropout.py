"""Dropout. The mask depends on the seed and the logical index, not on the layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ...errors import OnefoldRuntimeError, OnefoldValueError
from ...kernels import random_ref
from ...kernels.philox import Seed
from ...kernels.select import uses_triton
from .. import interpreter
from ..dispatcher import binary, number_last, several_of
from ..generator import Draw, default_generator
from ..meta import Meta, Shape
from ..names import register_as, register_function
from ..op import Gradients, Kernel, Local, Needs, NoAttributes, Op
from ..sbp import NdSbp, Sbp, broadcast
from ..signature import Axis, Rule, Signature, pointwise_of
from ..tensor import Tensor
from ..views import frozen
from .arithmetic import add, mul, sub
from .cast import cast
from .like import ones_like
from .slicing import select
from .view import view


@dataclass(slots=True, eq=False)
class DropoutKey:
    """The draw of one call of dropout, and the probability of a zero.

    A runtime argument, so that the plan does not depend on it; backward draws the same mask.
    """

    draw: Draw
    p: float


def next_draw(p: float) -> DropoutKey:
    """A fresh draw from the default generator."""
    return DropoutKey(default_generator.draw(), p)


class DropoutOp(Op):
    """y = x / (1 - p) where the draw keeps the element, else 0"""

    name = "dropout"
    attributes = NoAttributes
    saves = ()
    like = (0,)

    def rule(self, axis: Axis, x: Meta, key: DropoutKey) -> Rule:
        # All addends of a partial sum get the same mask.
        return pointwise_of((x,), "all")

    def bind(self, local: Local, attrs: NoAttributes) -> Kernel:
        x = local.inputs[0]
        assert x is not None
        shape, offset = tuple(x.shape), local.input_offset(0)
        picked = local.pick(random_ref.dropout)

        def drop(
            x: torch.Tensor, whole: Shape, start: Shape, p: float, seed: Seed, call: int
        ) -> torch.Tensor:
            y: torch.Tensor = picked(x, whole, start, p=p, seed=seed, call=call)
            return y

        dropped = local.around(picked, drop)

        def kernel(x: torch.Tensor, key: DropoutKey) -> torch.Tensor:
            draw = key.draw
            whole, start = draw.within(shape, offset)
            if draw.memory is not None:  # the call site is for numbers of the host
                return drop(x, whole, start, key.p, *draw.key)
            y: torch.Tensor = dropped(x, whole, start, key.p, draw.seed, draw.call)
            return y

        return kernel

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta, key: DropoutKey) -> Gradients:
        return (dropout_by(dy, key),)


dropout_by = number_last(DropoutOp())


class DropoutWithMask(Op):
    """dropout, and the mask by which its gradient is multiplied"""

    name = "dropout_with_mask"
    num_outputs = 2
    saves = ()
    saves_output = (1,)
    one_gradient = True

    def infer(self, x: Meta, key: DropoutKey) -> tuple[Meta, Meta]:
        return x, x.like(dtype=torch.bool)

    def rule(self, axis: Axis, x: Meta, key: DropoutKey) -> Rule:
        return [
            Signature(found.inputs, (*found.outputs, _mask_with(found.outputs[0])))
            for found in pointwise_of((x,), "all")
        ]

    def bind(self, local: Local, attrs: NoAttributes) -> Kernel:
        shape, offset = tuple(local.input(0).shape), local.input_offset(0)
        drop = local.pick(random_ref.dropout_with_mask)

        def kernel(x: torch.Tensor, key: DropoutKey) -> tuple[torch.Tensor, torch.Tensor]:
            whole, start = key.draw.within(shape, offset)
            seed, call = key.draw.key
            made: tuple[torch.Tensor, torch.Tensor]
            made = drop(x, whole, start, p=key.p, seed=seed, call=call)
            return made

        return kernel

    def vjp(
        self, needs: Needs, dy: Sequence[Tensor], y: Sequence[Tensor], x: Meta, key: DropoutKey
    ) -> Gradients:
        grad, mask = dy[0], y[1]
        if layout_of_mask(grad.meta.nd_sbp) == mask.meta.nd_sbp:
            return (_dropout_by_mask(grad, mask, key.p),)
        return (dropout_by(grad, key),)  # in the gradient's layout, as in graphs


class Probability(NamedTuple):
    """That of a zero."""

    p: float


class DropoutByMask(Op):
    """y = x / (1 - p) where a mask keeps the element, else 0"""

    name = "dropout_by_mask"
    attributes = Probability
    saves = (1,)
    like = (0,)
    kernel = staticmethod(random_ref.dropout_by_mask)

    def rule(self, axis: Axis, x: Meta, mask: Meta, attrs: Probability) -> Rule:
        return [
            Signature((found.inputs[0], _mask_with(found.inputs[0])), found.outputs)
            for found in pointwise_of((x,), "all")
        ]

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Meta, mask: Tensor, attrs: Probability
    ) -> Gradients:
        return _dropout_by_mask(dy, mask, attrs.p), None


def _mask_with(sbp: Sbp) -> Sbp:
    """The layout of the mask of what is laid out so: addends of a sum have the same mask."""
    return broadcast if sbp.is_partial else sbp


def layout_of_mask(nd_sbp: NdSbp) -> NdSbp:
    """The layout of the mask of a tensor that is laid out so.

    >>> from onefold import sbp
    >>> layout_of_mask((sbp.partial_sum, sbp.split(0)))
    (onefold.sbp.broadcast, onefold.sbp.split(dim=0))
    """
    return tuple([_mask_with(sbp) for sbp in nd_sbp])


_dropout_with_mask = several_of(DropoutWithMask(), "x key#", only_first=True)
_dropout_by_mask = binary(DropoutByMask(), "mask")


def _keeps_mask(x: Tensor) -> bool:
    """Whether the mask is kept for backward, a byte for each element.

    On the CPU it takes about twenty times as long to draw it again. Triton draws it again, and in
    graphs a pass finds which masks are kept, `graph/passes/keep_dropout_masks.py`.
    """
    current = interpreter.get_current()
    return (
        x.node is not None
        and x.meta.device_type == "cpu"
        and interpreter.is_grad_enabled()
        and (current is None or current.keeps_masks)
        and not uses_triton("cpu")
    )


def is_off(p: float, training: bool = True) -> bool:
    """Whether nothing is dropped; raises OnefoldValueError unless 0 <= p <= 1."""
    if not 0.0 <= p <= 1.0:
        raise OnefoldValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    return not training or p == 0.0


@register_function
def dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p), in training only.

    The same seed drops the same elements however the tensor is laid out. Each call takes one call
    id of the default generator. Raises OnefoldValueError unless 0 <= p <= 1.

    Example: `dropout(x, 0.1)`.
    """
    if is_off(p, training):
        return input
    if _keeps_mask(input):
        return _dropout_with_mask(input, next_draw(p))[0]
    return dropout_by(input, next_draw(p))


def _register_by_channel(name: str, sizes: str) -> None:
    """Dropout of whole channels; `sizes` name the dims after them."""
    most = sizes.count(",") + 3

    def call(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
        off = is_off(p, training)
        if input.ndim not in (most, most - 1):
            raise OnefoldValueError(
                f"{name} needs an input of {most} dims, or {most - 1} without a batch, but got "
                f"{input.ndim}"
            )
        if off:
            return input
        return mul(input, _channels_kept(input, 2 if input.ndim == most else 1, p))

    doc = f"Dropout of whole channels of (N, C, {sizes}), or (C, {sizes}); see `dropout`."
    register_as(name, call, doc)


def _channels_kept(input: Tensor, channels: int, p: float) -> Tensor:
    """A dropout of ones, one for each channel, that broadcasts to the input."""
    if not input.meta.numel:  # then a channel has no first element
        return dropout_by(ones_like(frozen(input)), next_draw(p))
    shape = (*input.shape[:channels], *[1] * (input.ndim - channels))
    mask = dropout_by(ones_like(_first_of(frozen(input), channels)), next_draw(p))
    return view(mask, shape)


def _first_of(x: Tensor, channels: int) -> Tensor:
    """One element per channel, laid out as the input's channels are."""
    for _ in range(x.ndim - channels):
        x = select(x, channels, 0)
    return x


_register_by_channel("dropout1d", "L")
_register_by_channel("dropout2d", "H, W")
_register_by_channel("dropout3d", "D, H, W")


@register_function
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False) -> Tensor:
    """Dropout to SELU's negative limit, rescaled to keep mean 0 and variance 1; see `dropout`.

    Raises OnefoldValueError unless 0 <= p <= 1.
    """
    if is_off(p, training):
        return input
    if p == 1.0:
        return mul(input, 0.0)
    return to_limit(input, dropout_by(ones_like(frozen(input)), next_draw(p)), p)


def to_limit(input: Tensor, kept: Tensor, p: float) -> Tensor:
    """The input where `kept`, a dropout of ones, is not zero, SELU's limit elsewhere, rescaled."""
    limit = -1.7580993408473766  # -scale * alpha of SELU
    # As in torch: y = a * (x * keep + limit * (1 - keep)) + b with mean 0 and variance 1.
    a = ((1.0 - p) * (1.0 + p * limit * limit)) ** -0.5
    keep = mul(kept, 1.0 - p)
    mixed = add(mul(sub(input, limit), keep), limit)
    return add(mul(mixed, a), -a * p * limit)


@register_function
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels of (N, C, ...)."""
    if is_off(p, training):
        return input
    if input.ndim < 2:
        raise OnefoldRuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return mul(input, 0.0) if p == 1.0 else to_limit(input, _channels_kept(input, 2, p), p)


@register_function
def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`dropout` of whole channels of (N, C, ...)."""
    off = is_off(p, train)
    if input.ndim < 2:
        raise OnefoldRuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return input if off else mul(input, _channels_kept(input, 2, p))


@register_function
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(`dropout`, a bool mask of what is kept); `train=None` drops, as True does."""
    ones = ones_like(frozen(input))
    if is_off(p, train is not False):
        return mul(input, 1.0), cast(ones, torch.bool)
    kept = dropout_by(ones, next_draw(p))
    return mul(input, kept), cast(kept, torch.bool)
