"""layer_norm and rms_norm over the last dims. A split normalized dim only exchanges sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch

from ...errors import OnefoldRuntimeError, OnefoldTypeError
from ...kernels import norm_ref as kernels
from ..dispatcher import general, several, with_optionals
from ..meta import Meta, Shape
from ..names import register_function
from ..op import Arg, Attributes, Gradients, Kernel, Metas, Needs, Op, required
from ..saved_values import Saves
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .arithmetic import add, mul, neg, plus, sub
from .cast import cast, widened
from .dims import expand
from .reduce import mean, sum_to, without_partials
from .result_shapes import FLOATS
from .unary import rsqrt


def splits_rows_only(x: Meta, shape: Shape) -> bool:
    """Whether no normalized dim is split."""
    first = x.ndim - len(shape)
    return all(sbp.kind != "S" or sbp.dim < first for sbp in x.nd_sbp)


class NormAttributes(NamedTuple):
    """The shape of the normalized last dims, and the epsilon added to the variance."""

    shape: Shape
    eps: float


class NormOp(Op):
    """An op of x, weight and bias; its outputs after the first are statistics of rows."""

    attributes: Callable[..., Attributes] = NormAttributes
    order = "row-major"
    saves: Saves | None = ((0, 1), (0,), ())
    flops_per_element = 6.0

    def rule(self, axis: Axis, x: Meta, weight: Meta | None, bias: Meta | None, attrs: Arg) -> Rule:
        others = 2 - (weight, bias).count(None)
        found = [
            Signature((split(i), *(broadcast,) * others), (split(i),) * self.num_outputs)
            for i in range(x.ndim - len(attrs.shape))
        ]
        # Linear in weight and bias together; a bias alone would not count once per addend.
        if weight is not None:
            whole = (broadcast,) * (self.num_outputs - 1)
            linear = (broadcast, *(partial_sum,) * others)
            found.append(Signature(linear, (partial_sum, *whole)))
        return found


class Norm(NormOp):
    """y = (x - mean) / deviation * weight + bias over the last dims, or without the mean"""

    def __init__(self, centered: bool) -> None:
        self.name = "layer_norm" if centered else "rms_norm"
        self.kernel = kernels.layer_norm if centered else kernels.rms_norm
        self.centered = centered

    def infer(self, *args: Arg) -> Meta | tuple[Meta, ...]:
        x, attrs = args[0], args[-1]
        found, wanted = list(x.shape), list(attrs.shape)
        if wanted and found[-len(wanted) :] != wanted:
            sizes = ", ".join(map(str, wanted))
            raise OnefoldRuntimeError(
                f"Given normalized_shape={wanted}, expected input with shape [*, {sizes}], but got "
                f"input of size {found}"
            )
        return super().infer(*args)

    def deduce(
        self, x: Meta, weight: Meta | None, bias: Meta | None, attrs: NormAttributes
    ) -> Meta | None:
        shape = attrs.shape
        weights = [m for m in (weight, bias) if m is not None]
        fits = tuple(x.shape[-len(shape) :]) == shape and all(m.shape == shape for m in weights)
        # rms_norm takes a weight of any floating dtype; torch would warn that its kernel does not.
        alike = all(m.dtype == x.dtype or (m.is_floating and not self.centered) for m in weights)
        ordinary = x.dtype in FLOATS and isinstance(attrs.eps, (int, float))
        return x if fits and alike and ordinary else None

    def decompose(self, metas: Metas, attrs: NormAttributes) -> Kernel | None:
        if splits_rows_only(required(metas[0]), attrs.shape):
            return None
        return partial(_norm_parts, self.centered)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Tensor, weight: Tensor | None, *rest: Arg
    ) -> Gradients:
        if not needs[0]:
            return scale_and_shift_gradients(self.centered, needs, dy, x, weight, *rest)
        if not any(needs[1:]):
            return (input_gradient(self.centered, dy, x, weight, rest[-1]),)
        entry = layer_norm_grad if self.centered else _rms_norm_grad
        return entry((dy, x, weight), *rest[-1])


class NormGradOp(Op):
    """Gradients for x, weight and bias (rms_norm: x and weight), from dy and saved tensors."""

    order = "row-major"
    flops_per_element = 12.0

    def infer(self, dy: Meta, x: Meta, weight: Meta | None, *rest: Arg) -> Meta | tuple[Meta, ...]:
        if self.num_outputs == 1:
            return x
        of_weight = x.like(shape=rest[-1].shape) if weight is None else weight
        return (x, *(of_weight,) * (self.num_outputs - 1))

    def rule(self, axis: Axis, dy: Meta, x: Meta, weight: Meta | None, *rest: Arg) -> Rule:
        *statistics, attrs = rest
        others, wide = self.num_outputs - 1, () if weight is None else (broadcast,)
        whole = (broadcast,) * len(statistics)
        found = []
        for at in map(split, range(x.ndim - len(attrs.shape))):
            inputs = (at, at, *wide, *(at,) * len(statistics))
            found.append(Signature(inputs, (at, *(partial_sum,) * others)))
        linear = (partial_sum, broadcast, *wide, *whole)
        found.append(Signature(linear, (partial_sum,) * self.num_outputs))
        if weight is not None:
            linear = (broadcast, broadcast, partial_sum, *whole)
            found.append(Signature(linear, (partial_sum, *(broadcast,) * others)))
        return found


class NormGrad(NormGradOp):
    """Gradients of a norm that kept no statistics"""

    attributes = NormAttributes

    def __init__(self, centered: bool) -> None:
        self.name = "layer_norm_grad" if centered else "rms_norm_grad"
        self.kernel = kernels.layer_norm_grad if centered else kernels.rms_norm_grad
        self.centered = centered
        self.num_outputs = 3 if centered else 2

    def decompose(self, metas: Metas, attrs: NormAttributes) -> Kernel | None:
        if all(splits_rows_only(required(meta), attrs.shape) for meta in metas[:2]):
            return None
        return partial(_grad_parts, self.centered)

    def vjp(self, needs: Needs, dy: tuple[Tensor | None, ...], y: object, *args: Arg) -> Gradients:
        *tensors, attrs = args
        return _second_gradients(self.centered, dy, *tensors, *attrs)


class NormInputGrad(NormGradOp):
    """The gradient of a norm that kept no statistics for x alone"""

    attributes = NormAttributes

    def __init__(self, centered: bool) -> None:
        self.name = "layer_norm_input_grad" if centered else "rms_norm_input_grad"
        self.kernel = kernels.layer_norm_input_grad if centered else kernels.rms_norm_input_grad
        self.centered = centered

    def decompose(self, metas: Metas, attrs: NormAttributes) -> Kernel | None:
        if all(splits_rows_only(required(meta), attrs.shape) for meta in metas[:2]):
            return None
        return self._in_parts

    def _in_parts(self, *args: Arg) -> Tensor:
        return _grad_parts(self.centered, *args)[0]

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, *args: Arg) -> Gradients:
        *tensors, attrs = args
        return _second_gradients(self.centered, (dy, None, None), *tensors, *attrs)


def input_gradient(
    centered: bool, dy: Tensor, x: Tensor, weight: Tensor | None, attrs: NormAttributes
) -> Tensor:
    """The gradient of a norm for x, where its weights are frozen or there are none."""
    entry = _layer_norm_input_grad if centered else _rms_norm_input_grad
    return entry((dy, x, weight), *attrs)


# The same in smaller ops: for split normalized dims, and for second gradients.


def scale_and_shift_gradients(
    centered: bool,
    needs: Needs,
    dy: Tensor,
    x: Tensor | Meta,
    weight: Tensor | Meta | None,
    bias: Tensor | Meta | None,
    attrs: NormAttributes,
) -> Gradients:
    """The gradients of a norm for weight and bias, where that of x is not wanted."""
    d_weight = d_bias = None
    if weight is not None and needs[1]:
        assert isinstance(x, Tensor)
        if weight.dtype is x.dtype:  # in which they are made, also without the weight's values
            entry = layer_norm_grad if centered else _rms_norm_grad
            return None, *entry((dy, x, None), *attrs)[1:]
        plain = layer_norm_plain if centered else rms_norm_plain
        unit = plain(widened(x), None, None, *attrs)
        d_weight = sum_to(mul(dy, unit), weight.meta)
    if bias is not None and needs[2]:
        d_bias = sum_to(dy, bias.meta)
    return None, d_weight, d_bias


def _dims(x: Tensor, shape: Shape) -> tuple[int, ...]:
    return tuple(range(x.ndim - len(shape), x.ndim))


def _average(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    return without_partials(mean(x, dims, True))


def _unit(x: Tensor, dims: tuple[int, ...], eps: float, centered: bool) -> tuple[Tensor, Tensor]:
    """(x normalized to deviation 1, the reciprocal of its deviation)."""
    if centered:
        x = sub(x, _average(x, dims))
    rstd = rsqrt(add(_average(mul(x, x), dims), eps))
    return mul(x, rstd), rstd


def _projected(v: Tensor, unit: Tensor, dims: tuple[int, ...], centered: bool) -> Tensor:
    """v without the components along which x would change its mean and deviation."""
    along = mul(unit, _average(mul(v, unit), dims))
    if centered:
        v = sub(v, _average(v, dims))
    return sub(v, along)


def _norm_parts(
    centered: bool, x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Shape, eps: float
) -> Tensor:
    y = _unit(widened(x), _dims(x, shape), eps, centered)[0]
    if weight is not None:
        y = mul(y, weight)
    y = y if bias is None else add(y, bias)
    if centered or weight is None:
        return cast(y, x.dtype)
    return cast(y, torch.promote_types(x.dtype, weight.dtype))


def _summed(x: Tensor, shape: Shape, dtype: torch.dtype) -> Tensor:
    return sum_to(x, x.meta.like(shape=shape, dtype=dtype))


def _grad_parts(
    centered: bool, tensors: tuple[Tensor, Tensor, Tensor | None], shape: Shape, eps: float
) -> tuple[Tensor, ...]:
    dy, x, weight = tensors
    dims = _dims(x, shape)
    dtypes = x.dtype, x.dtype if weight is None else weight.dtype
    dy = widened(dy)
    unit, rstd = _unit(widened(x), dims, eps, centered)
    g = dy if weight is None else mul(dy, weight)
    dx = cast(mul(rstd, _projected(g, unit, dims, centered)), dtypes[0])
    d_weight = _summed(mul(dy, unit), shape, dtypes[1])
    return (dx, d_weight, _summed(dy, shape, dtypes[1])) if centered else (dx, d_weight)


def _second_gradients(
    centered: bool,
    u: tuple[Tensor | None, ...],
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    shape: Shape,
    eps: float,
) -> tuple[Tensor | None, ...]:
    """The vjp of (dx, d_weight, d_bias) for dy, x and weight, u being the gradients of the three.

    With g = dy * weight and P as in `_projected`: dx = rstd P(g), d_weight = sum dy * unit.
    """
    dims = _dims(x, shape)
    dtypes = dy.dtype, x.dtype
    dy, u = widened(dy), tuple([None if by is None else widened(by) for by in u])
    unit, rstd = _unit(widened(x), dims, eps, centered)
    by_dy = by_x = by_weight = None
    if u[0] is not None:
        g = dy if weight is None else mul(dy, weight)
        along = mul(rstd, _projected(u[0], unit, dims, centered))
        by_dy = along if weight is None else mul(along, weight)
        if weight is not None:
            by_weight = sum_to(mul(along, dy), weight.meta)
        mixed = add(
            mul(u[0], _average(mul(g, unit), dims)), mul(g, _average(mul(u[0], unit), dims))
        )
        to_unit = neg(mul(rstd, mixed))
        shrink = _average(mul(u[0], _projected(g, unit, dims, centered)), dims)
        by_x = neg(mul(mul(unit, shrink), mul(rstd, rstd)))
        by_x = add(by_x, mul(rstd, _projected(to_unit, unit, dims, centered)))
    if u[1] is not None:
        by_dy = plus(by_dy, mul(unit, u[1]))
        to_unit = _projected(mul(dy, u[1]), unit, dims, centered)
        by_x = plus(by_x, mul(rstd, to_unit))
    if centered and u[2] is not None:
        by_dy = plus(by_dy, expand(u[2], dy.shape))
    return _as(by_dy, dtypes[0]), _as(by_x, dtypes[1]), by_weight


def _as(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if x is None else cast(x, dtype)


LAYER_NORM, RMS_NORM = Norm(centered=True), Norm(centered=False)
layer_norm_plain, rms_norm_plain = with_optionals(LAYER_NORM), with_optionals(RMS_NORM)
layer_norm_grad = several(NormGrad(centered=True))
_rms_norm_grad = several(NormGrad(centered=False))
_layer_norm_input_grad = general(NormInputGrad(centered=True))
_rms_norm_input_grad = general(NormInputGrad(centered=False))


def as_shape(shape: int | Sequence[int], name: str) -> Shape:
    """A normalized_shape as a tuple."""
    if isinstance(shape, int):
        raise OnefoldTypeError(f"{name}: normalized_shape must be a sequence of ints, not an int")
    return tuple(shape)


@register_function
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divide by the root mean square over the last dims, then scale, as in torch.

    `eps` defaults to the dtype's machine epsilon. Raises an error when `normalized_shape` is not
    the shape of the last dims.

    Example: `rms_norm(x, (16,), w)` with x (4, 16).
    """
    if eps is None:
        eps = torch.finfo(torch.promote_types(input.dtype, torch.float32)).eps
    shape = as_shape(normalized_shape, "rms_norm")
    if input.dtype.is_complex:
        return _norm_parts(False, input, weight, None, shape, eps)
    return rms_norm_plain(input, weight, None, shape, eps)
