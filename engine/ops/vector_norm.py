"""Vector norms of every order. Over a split dim they combine sums of powers."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from ...errors import OnefoldValueError
from ...kernels import pointwise_ref as elementwise, reduce_ref as kernels
from ..dispatcher import unary
from ..meta import Meta
from ..names import register_function
from ..op import Gradients, Kernel, Local, Metas, Needs, Op
from ..out_tensors import give_to
from ..sbp import partial_max, partial_min, partial_sum
from ..signature import Axis, Rule
from ..tensor import Tensor
from .arithmetic import div, div_by_count, mul
from .cast import cast, is_half, narrowed, widened
from .compare import eq
from .data_movement import wrap_all
from .elementwise import with_settings
from .elementwise_nary import pow
from .like import constant_like
from .reduce import Dims, hashable, is_split_along, reduction, spread, sum
from .result_shapes import FLOATS, reduced
from .unary import abs, reciprocal, sgn, square
from .where import clamp_min, or_zero, where


class VectorNormAttributes(NamedTuple):
    """The order, the dims, and whether they stay with size 1."""

    ord: float
    dim: Dims
    keepdim: bool


class VectorNorm(Op):
    """(sum of |x|**ord)**(1/ord), the extremes for ord = +-inf, the non-zeros for ord = 0."""

    name = "vector_norm"
    attributes = VectorNormAttributes
    order = "row-major"
    saves_output = True
    kernel = staticmethod(kernels.vector_norm)

    def deduce(self, x: Meta, attrs: VectorNormAttributes) -> Meta | None:
        ordinary = x.dtype in FLOATS and x.numel and type(attrs.ord) in (int, float)
        shape = reduced(x.shape, attrs.dim, attrs.keepdim) if ordinary else None
        return None if shape is None else x.like(shape)

    def rule(self, axis: Axis, x: Meta, attrs: VectorNormAttributes) -> Rule:
        reduces_to = {0: partial_sum, 1: partial_sum, math.inf: partial_max, -math.inf: partial_min}
        return reduction(x.ndim, attrs.dim, attrs.keepdim, reduces_to.get(attrs.ord))

    def bind(self, local: Local, attrs: VectorNormAttributes) -> Kernel:
        ord = attrs.ord
        if math.isinf(ord) and math.prod(local.input_shape(0)) == 0:
            target = local.output_shape()
            return lambda x: x.abs().new_full(target, max(0.0, -ord))
        return super().bind(local, attrs)

    def decompose(self, metas: Metas, attrs: VectorNormAttributes) -> Kernel | None:
        ord, dim, _ = attrs
        if math.isinf(ord) or not is_split_along(metas[0], dim):
            return None
        if metas[0] is not None and is_half(metas[0].dtype):
            return _norm_of_halves
        return None if ord in (0, 1) else _norm_over_split

    def vjp(
        self, needs: Needs, dy: Tensor, y: Tensor, x: Tensor, attrs: VectorNormAttributes
    ) -> Gradients:
        ord, dim, keepdim = attrs

        def spreading(reduced: Tensor) -> Tensor:
            return spread(reduced, x.shape, dim, keepdim)

        if ord == 0:
            return (constant_like(x, 0),)
        if ord == 1:
            return (mul(spreading(dy), sgn(x)),)
        if ord == 2:
            return (mul(spreading(mul(dy, or_zero(y, reciprocal(y)))), x),)
        size = abs(x)
        if math.isinf(ord):
            found = eq(size, spreading(y))
            share = spreading(div_by_count(dy, sum(found, dim, keepdim)))
            return (mul(where(found, share, 0.0), sgn(x)),)
        size, y = widened(size), widened(y)  # powers of halves overflow
        ratio = mul(dy, or_zero(y, pow(y, 1 - ord)))
        slope = mul(sgn(x), or_zero(size, pow(size, ord - 1)))
        return (narrowed(mul(spreading(ratio), slope), x.dtype),)


def _norm_of_halves(x: Tensor, ord: float, dim: Dims, keepdim: bool) -> Tensor:
    return cast(_vector_norm(widened(x), ord, dim, keepdim), x.dtype)


def _norm_over_split(x: Tensor, ord: float, dim: Dims, keepdim: bool) -> Tensor:
    size = abs(x) if x.meta.dtype.is_complex else x
    if ord == 2:
        return _power_root(sum(square(size), dim, keepdim), 2)
    return _power_root(sum(_power(x, ord), dim, keepdim), ord)


def _power_gradient(dy: Tensor, x: Tensor, ord: float) -> Tensor:
    size = abs(x)
    slope = mul(sgn(x), or_zero(size, pow(size, ord - 1)))
    return mul(dy, mul(slope, ord))


_power = with_settings("norm_power", elementwise.norm_power, "ord", _power_gradient)
_power_root = with_settings(
    "norm_root",
    elementwise.norm_root,
    "ord",
    lambda dy, y, ord: mul(dy, or_zero(y, div(pow(y, 1 - ord), ord))),
)
_vector_norm = unary(VectorNorm())


@register_function
def vector_norm(
    input: Tensor,
    ord: float = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The vector norm of order `ord` over `dim` (None: over all), as torch.linalg.vector_norm.

    A split dim is not gathered: the parts exchange their sums of powers.
    """
    if out is not None:
        return give_to(out, vector_norm(input, ord, dim, keepdim, dtype=dtype or out.dtype))
    x = input if dtype is None else cast(input, dtype)
    if dim is not None and not x.meta.numel:  # torch's shape function takes no dim from the end
        dim = wrap_all(dim, x.ndim)
    return _vector_norm(x, ord, hashable(dim), keepdim)


@register_function
def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The vector norm of order `p` over `dim` (None: over all); "fro" is order 2.

    Raises OnefoldValueError for the nuclear norm.
    """
    if p is None or p == "fro":
        p = 2
    if isinstance(p, str):
        raise OnefoldValueError(f"norm: p must be a number or 'fro', but got {p!r}")
    return vector_norm(input, p, dim, keepdim, dtype=dtype, out=out)


@register_function
def normalize(input: Tensor, p: float = 2.0, dim: Dims = 1, eps: float = 1e-12) -> Tensor:
    """`input` divided by its norm of order `p` over `dim`, or by `eps` where that is larger.

    Example: `normalize(x, dim=-1)` gives rows of length 1.
    """
    size = clamp_min(vector_norm(input, p, dim, True), eps)
    return div(input, size)
