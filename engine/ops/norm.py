"""layer_norm and rms_norm over the last dims. A split normalized dim only exchanges sums."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from ...errors import OnefoldTypeError
from ...kernels import norm_ref as kernels
from ..dispatcher import several, with_optionals
from ..meta import Meta
from ..names import register_function
from ..op import Kernel, Local, Op
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .arithmetic import add, mul, neg, sub
from .cast import cast, widened
from .dims import expand
from .reduce import mean, sum_to
from .softmax import combine_partials
from .unary import rsqrt

Shape = tuple[int, ...]


def splits_rows_only(x: Meta, shape: Shape) -> bool:
    """Whether no axis splits a dim that is normalised over."""
    first = x.ndim - len(shape)
    return all(sbp.kind != "S" or sbp.dim < first for sbp in x.nd_sbp)


class NormAttributes(NamedTuple):
    """The shape of the last dims, which are normalised over, and what is added to the variance."""

    shape: Shape
    eps: float


class Norm(Op):
    """y = (x - mean) / deviation * weight + bias over the last dims, or without the mean"""

    attributes = NormAttributes
    saves = (0, 1)
    flops_per_element = 6.0

    def __init__(self, centred: bool) -> None:
        self.name = "layer_norm" if centred else "rms_norm"
        self.centred = centred

    def infer(self, x: Meta, weight: Meta | None, bias: Meta | None, attrs: NormAttributes) -> Meta:
        shape, eps = attrs
        weights = [m for m in (weight, bias) if m is not None]
        fits = tuple(x.shape[-len(shape) :]) == shape
        if fits and x.is_floating and all(m.shape == shape and m.dtype == x.dtype for m in weights):
            return x
        blank = torch.empty(x.shape, dtype=x.dtype, device="meta")  # for torch's own error
        others = [
            None if m is None else torch.empty(m.shape, dtype=m.dtype, device="meta")
            for m in (weight, bias)
        ]
        if self.centred:
            y = torch.layer_norm(blank, shape, others[0], others[1], eps)
        else:
            y = torch.rms_norm(blank, shape, others[0], eps)
        return Meta.of(y.shape, y.dtype, device=y.device)

    def rule(
        self, axis: Axis, x: Meta, weight: Meta | None, bias: Meta | None, attrs: NormAttributes
    ) -> Rule:
        others = 2 - (weight, bias).count(None)
        found = [
            Signature((split(i), *(broadcast,) * others), (split(i),))
            for i in range(x.ndim - len(attrs.shape))
        ]
        # Linear in weight and bias together; a bias alone would not count once per addend.
        if weight is not None:
            found.append(Signature((broadcast, *(partial_sum,) * others), (partial_sum,)))
        return found

    def bind(self, local: Local, attrs: NormAttributes) -> Kernel:
        shape, eps = attrs
        kernel = local.pick(kernels.layer_norm if self.centred else kernels.rms_norm)
        return lambda x, weight, bias: kernel(x, weight, bias, shape, eps)

    @property
    def depends_on_position(self) -> bool:
        return False

    def decompose(self, metas: tuple[Meta | None, ...], attrs: NormAttributes) -> Kernel | None:
        x = metas[0]
        assert x is not None
        return None if splits_rows_only(x, attrs.shape) else partial(_norm_parts, self.centred)

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        x: Tensor,
        weight: Tensor | None,
        bias: Meta | None,
        attrs: NormAttributes,
    ) -> tuple[Tensor, ...]:
        entry = layer_norm_grad if self.centred else _rms_norm_grad
        return entry((dy, x, weight), *attrs)


class NormGrad(Op):
    """Gradients of a norm for x, weight and bias (rms_norm: x and weight)"""

    attributes = NormAttributes
    flops_per_element = 12.0

    def __init__(self, centred: bool) -> None:
        self.name = "layer_norm_grad" if centred else "rms_norm_grad"
        self.centred = centred
        self.num_outputs = 3 if centred else 2

    def infer(
        self, dy: Meta, x: Meta, weight: Meta | None, attrs: NormAttributes
    ) -> tuple[Meta, ...]:
        of_weight = x.like(shape=attrs.shape) if weight is None else weight
        return (x, *(of_weight,) * (self.num_outputs - 1))

    def rule(
        self, axis: Axis, dy: Meta, x: Meta, weight: Meta | None, attrs: NormAttributes
    ) -> Rule:
        wide = () if weight is None else (broadcast,)
        partial = (partial_sum,) * (self.num_outputs - 1)
        found = [
            Signature((split(i), split(i), *wide), (split(i), *partial))
            for i in range(x.ndim - len(attrs.shape))
        ]
        found.append(Signature((partial_sum, broadcast, *wide), (partial_sum, *partial)))
        if weight is not None:
            rest = (broadcast,) * (self.num_outputs - 1)
            found.append(Signature((broadcast, broadcast, partial_sum), (partial_sum, *rest)))
        return found

    def bind(self, local: Local, attrs: NormAttributes) -> Kernel:
        kernel = local.pick(kernels.layer_norm_grad if self.centred else kernels.rms_norm_grad)
        return lambda dy, x, weight: kernel(dy, x, weight, *attrs)

    @property
    def depends_on_position(self) -> bool:
        return False

    def decompose(self, metas: tuple[Meta | None, ...], attrs: NormAttributes) -> Kernel | None:
        dy, x, _ = metas
        assert dy is not None
        assert x is not None
        if splits_rows_only(x, attrs.shape) and splits_rows_only(dy, attrs.shape):
            return None
        return partial(_grad_parts, self.centred)

    def vjp(
        self,
        needs: Sequence[object],
        dy: tuple[Tensor | None, ...],
        y: Any,
        g: Tensor,
        x: Tensor,
        weight: Tensor | None,
        attrs: NormAttributes,
    ) -> tuple[Tensor | None, ...]:
        return _second_gradients(self.centred, dy, g, x, weight, *attrs)


# The same in smaller ops: for split normalised dims, and for second gradients.


def _dims(x: Tensor, shape: Shape) -> tuple[int, ...]:
    return tuple(range(x.ndim - len(shape), x.ndim))


def _average(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    return combine_partials(mean(x, dims, True))


def _unit(x: Tensor, dims: tuple[int, ...], eps: float, centred: bool) -> tuple[Tensor, Tensor]:
    """(x normalised to deviation 1, the reciprocal of its deviation)."""
    if centred:
        x = sub(x, _average(x, dims))
    rstd = rsqrt(add(_average(mul(x, x), dims), eps))
    return mul(x, rstd), rstd


def _projected(v: Tensor, unit: Tensor, dims: tuple[int, ...], centred: bool) -> Tensor:
    """v less what a change of x along it would change in mean and deviation."""
    along = mul(unit, _average(mul(v, unit), dims))
    if centred:
        v = sub(v, _average(v, dims))
    return sub(v, along)


def _norm_parts(
    centred: bool,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    shape: Shape,
    eps: float,
) -> Tensor:
    y = _unit(widened(x), _dims(x, shape), eps, centred)[0]
    if weight is not None:
        y = mul(y, weight)
    y = y if bias is None else add(y, bias)
    if centred or weight is None:
        return cast(y, x.dtype)
    return cast(y, torch.promote_types(x.dtype, weight.dtype))


def _summed(x: Tensor, shape: Shape, dtype: torch.dtype) -> Tensor:
    return sum_to(x, x.meta.like(shape=shape, dtype=dtype))


def _grad_parts(
    centred: bool, tensors: tuple[Any, ...], shape: Shape, eps: float
) -> tuple[Tensor, ...]:
    dy, x, weight = tensors
    dims = _dims(x, shape)
    dtypes = x.dtype, x.dtype if weight is None else weight.dtype
    dy = widened(dy)
    unit, rstd = _unit(widened(x), dims, eps, centred)
    g = dy if weight is None else mul(dy, weight)
    dx = cast(mul(rstd, _projected(g, unit, dims, centred)), dtypes[0])
    d_weight = _summed(mul(dy, unit), shape, dtypes[1])
    return (dx, d_weight, _summed(dy, shape, dtypes[1])) if centred else (dx, d_weight)


def _second_gradients(
    centred: bool,
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
    unit, rstd = _unit(widened(x), dims, eps, centred)
    by_dy = by_x = by_weight = None
    if u[0] is not None:
        g = dy if weight is None else mul(dy, weight)
        along = mul(rstd, _projected(u[0], unit, dims, centred))
        by_dy = along if weight is None else mul(along, weight)
        if weight is not None:
            by_weight = sum_to(mul(along, dy), weight.meta)
        mixed = add(
            mul(u[0], _average(mul(g, unit), dims)),
            mul(g, _average(mul(u[0], unit), dims)),
        )
        to_unit = neg(mul(rstd, mixed))
        shrink = _average(mul(u[0], _projected(g, unit, dims, centred)), dims)
        by_x = neg(mul(mul(unit, shrink), mul(rstd, rstd)))
        by_x = add(by_x, mul(rstd, _projected(to_unit, unit, dims, centred)))
    if u[1] is not None:
        by_dy = _plus(by_dy, mul(unit, u[1]))
        to_unit = _projected(mul(dy, u[1]), unit, dims, centred)
        by_x = _plus(by_x, mul(rstd, to_unit))
    if centred and u[2] is not None:
        by_dy = _plus(by_dy, expand(u[2], dy.shape))
    return _as(by_dy, dtypes[0]), _as(by_x, dtypes[1]), by_weight


def _as(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if x is None else cast(x, dtype)


def _plus(a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else add(a, b)


layer_norm_plain = with_optionals(Norm(centred=True))
_rms_norm = with_optionals(Norm(centred=False))
layer_norm_grad = several(NormGrad(centred=True))
_rms_norm_grad = several(NormGrad(centred=False))


def as_shape(shape: Any, name: str) -> Shape:
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
    return _rms_norm(input, weight, None, shape, eps)
