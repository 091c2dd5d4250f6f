"""Sums and means over dims, and the ops that their gradients need."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import torch

from ...kernels import reduce_ref as kernels
from .. import argument_types
from ..cached_cast import low_copy
from ..convert import box
from ..dispatcher import unary
from ..meta import Meta, Shape
from ..names import register_function
from ..op import Arg, Attributes, Gradients, Kernel, Local, Metas, Needs, Op, required
from ..out_tensors import give_to
from ..sbp import Sbp, broadcast, partial_max, partial_min, partial_sum, split, without_partial
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .cast import cast, is_widening
from .dims import expand
from .pointwise import fitting
from .result_shapes import COMMON, COMPLEX, FLOATS, reduced, summed

Dims: TypeAlias = argument_types.Dims | None  # None: all


def dims_of(dim: Dims, ndim: int) -> tuple[int, ...]:
    """The reduced dims, counted from 0; None and () mean all of them.

    >>> dims_of(-1, 3), dims_of(None, 2)
    ((2,), (0, 1))
    """
    if dim is None or dim == ():
        return tuple(range(ndim))
    dims = (dim,) if isinstance(dim, int) else dim
    return tuple(d % ndim if ndim else 0 for d in dims)


def hashable(dim: Dims) -> Dims:
    """A `dim` argument as part of a plan's key."""
    return tuple(dim) if isinstance(dim, list) else dim


@lru_cache(maxsize=4096)
def reduction(
    ndim: int, dim: Dims, keepdim: bool, reduces_to: Sbp | None, passes: tuple[Sbp, ...] = ()
) -> tuple[Signature, ...]:
    """The signatures of a reduction.

    A dim that is kept can be split; so can a reduced one when the parts of the result join by
    `reduces_to`; `passes` are the partial layouts that go through.
    """
    dims = dims_of(dim, ndim)
    found = []
    for d in range(ndim):
        if d not in dims:
            before = 0 if keepdim else len([r for r in dims if r < d])
            found.append(Signature((split(d),), (split(d - before),)))
        elif reduces_to is not None:
            found.append(Signature((split(d),), (reduces_to,)))
    return (*found, *[Signature((partial,), (partial,)) for partial in passes])


def is_split_along(meta: Meta | None, dim: Dims) -> bool:
    """Whether some axis splits one of the dims."""
    meta = required(meta)
    split_dims = [sbp.dim for sbp in meta.nd_sbp if sbp.kind == "S"]
    if not split_dims:
        return False
    dims = dims_of(dim, meta.ndim)
    return any(split_dim in dims for split_dim in split_dims)


def count_along(meta: Meta, dim: Dims) -> int:
    """The number of elements that each element of the result is reduced from."""
    return math.prod([meta.shape[d] for d in dims_of(dim, meta.ndim)] if meta.ndim else [])


def without_partials(x: Tensor) -> Tensor:
    """`x` with its partial axes reduced, for small tensors that are combined with large split ones.

    Otherwise their sum might be laid out as partial, and the large one be communicated.
    """
    if not x.meta.partial:
        return x
    return box(x, x.meta.like(nd_sbp=without_partial(x.meta.nd_sbp)))


class DimAttributes(NamedTuple):
    """The dims, and whether they stay with size 1."""

    dim: Dims
    keepdim: bool


class Reduction(Op):
    """A reduction of one tensor over dims.

    Parts of a split dim join by `reduces_to`. Without it the op is decomposed into `over_split`,
    where a dim is split, or the dim is gathered.
    """

    attributes: Callable[..., Attributes] = DimAttributes
    order = "row-major"
    reduces_to: Sbp | None = None
    over_split: Kernel | None = None

    def rule(self, axis: Axis, x: Meta, attrs: Arg) -> Rule:
        return reduction(x.ndim, attrs.dim, attrs.keepdim, self.reduces_to)

    def decompose(self, metas: Metas, attrs: Arg) -> Kernel | None:
        return self.over_split if is_split_along(metas[0], attrs.dim) else None


class SpreadAttributes(NamedTuple):
    """The target shape, the reduced dims, and whether these are kept with size 1."""

    shape: Shape
    dim: Dims
    keepdim: bool


class Spread(Op):
    """The inverse of a reduction's shape: each element repeated along the reduced dims.

    The gradient of a sum; with `shares`, divided by the number of repetitions, that of a mean.
    """

    attributes = SpreadAttributes
    saves = ()

    def __init__(self, name: str, shares: bool) -> None:
        self.name = name
        self.shares = shares
        self.aliases = not shares

    def infer(self, x: Meta, attrs: SpreadAttributes) -> Meta:
        return x.like(shape=attrs.shape)

    def rule(self, axis: Axis, x: Meta, attrs: SpreadAttributes) -> Rule:
        shape, dim, keepdim = attrs
        partials = (partial_sum, partial_max, partial_min)
        forward = reduction(len(shape), dim, keepdim, broadcast, partials)
        return fitting([Signature(s.outputs, s.inputs) for s in forward], [x])

    def bind(self, local: Local, attrs: SpreadAttributes) -> Kernel:
        shape, dim, keepdim = attrs
        dims = dims_of(dim, len(shape))
        target = local.output_shape()
        middle = tuple([1 if d in dims else size for d, size in enumerate(target)])
        if self.shares:
            # Of no elements there is no gradient either: any count but 0 will do.
            count = math.prod([shape[d] for d in dims] if shape else []) or 1
            div = local.pick(torch.div)

            def shared(x: torch.Tensor) -> torch.Tensor:
                # Without data only the shape counts, and torch would load its compiler to divide.
                share = x.new_empty(x.shape) if x.is_meta else div(x, count)
                return share.reshape(middle).expand(target)

            return shared
        if keepdim or len(dims) == len(shape):
            return local.bind(torch.Tensor.expand, target)
        return lambda x: x.reshape(middle).expand(target)

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta, attrs: SpreadAttributes) -> Gradients:
        reduce = _mean if self.shares and y.numel else _sum
        return (reduce(dy, attrs.dim, attrs.keepdim, None),)


spread = unary(Spread("spread", shares=False))
_spread_shares = unary(Spread("spread_shares", shares=True))


def as_split(grad: Tensor, x: Meta) -> Tensor:
    """A replicated gradient for `x` in the layout of `x`: each rank keeps only its part.

    Only where that is a slice of what the rank holds. Without it, work on the gradient would be
    done by every rank.
    """
    if x.placement is None:
        return grad
    target = _split_target(grad.meta, x)
    return grad if target is grad.meta else box(grad, target)


@lru_cache(maxsize=4096)
def _split_target(grad: Meta, x: Meta) -> Meta:
    if grad.placement is not x.placement:
        return grad
    present = [sbp for sbp in grad.nd_sbp if sbp.is_split]
    nd_sbp = [
        wanted if have is broadcast and wanted.is_split and wanted not in present else have
        for have, wanted in zip(grad.nd_sbp, x.nd_sbp, strict=True)
    ]
    return grad.like(nd_sbp=tuple(nd_sbp))


class ReduceAttributes(NamedTuple):
    """The dims, whether they stay with size 1, and the dtype to compute in (None: as torch's)."""

    dim: Dims
    keepdim: bool
    dtype: torch.dtype | None


class Sum(Op):
    """The sum over dims, or with `shares` divided by the count: a part's share of the mean."""

    attributes = ReduceAttributes
    order = "row-major"
    saves = ()

    def __init__(self, name: str, shares: bool) -> None:
        self.name = name
        self.shares = shares
        self.kernel = kernels.mean if shares else kernels.total

    def deduce(self, x: Meta, attrs: ReduceAttributes) -> Meta | None:
        dtype = attrs.dtype
        if dtype is None:
            dtype = x.dtype if self.shares else summed(x.dtype)
        shape = reduced(x.shape, attrs.dim, attrs.keepdim)
        known = {dtype, x.dtype} <= COMMON and (dtype.is_complex or not x.dtype.is_complex)
        if shape is None or not known or (self.shares and dtype not in FLOATS | COMPLEX):
            return None
        return x.like(shape, dtype)

    def rule(self, axis: Axis, x: Meta, attrs: ReduceAttributes) -> Rule:
        passes = (partial_sum,) if is_widening(x.dtype, attrs.dtype or x.dtype) else ()
        return reduction(x.ndim, attrs.dim, attrs.keepdim, partial_sum, passes)

    def bind(self, local: Local, attrs: ReduceAttributes) -> Kernel:
        if self.shares and is_split_along(local.inputs[0], attrs.dim):
            return local.bind(kernels.partial_mean, *attrs, count_along(local.input(0), attrs.dim))
        bound = local.bind(self.kernel, *attrs)
        if bound.kernel is self.kernel and attrs == (None, False, None):
            return torch.mean if self.shares else torch.sum
        return bound

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta, attrs: ReduceAttributes) -> Gradients:
        back = _spread_shares if self.shares else spread
        grad = back(cast(dy, x.dtype), x.shape, attrs.dim, attrs.keepdim)
        return (as_split(grad, x),)


_sum = unary(Sum("sum", shares=False))
_mean = unary(Sum("mean", shares=True))


@register_function
def sum(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The sum over `dim` (None: over all); integers and bools are summed as int64.

    Over a split dim the result is a partial sum: nothing is communicated.
    """
    if out is not None:
        return give_to(out, sum(input, dim, keepdim, dtype=dtype or out.dtype))
    if type(dim) is list:
        dim = tuple(dim)
    return _sum(input, dim, keepdim, dtype)


@register_function
def mean(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The mean over `dim` (None: over all), of a floating point or complex tensor.

    Over a split dim the result is a partial sum; uneven parts count by their size.
    """
    if out is not None:
        return give_to(out, mean(input, dim, keepdim, dtype=dtype or out.dtype))
    if type(dim) is list:
        dim = tuple(dim)
    return _mean(input, dim, keepdim, dtype)


class SumToAttributes(NamedTuple):
    """The input's logical shape, and the shape that was broadcast to it.

    A dim of the input that other axes split into parts of size 1 must not look like one of size 1.
    """

    whole: Shape
    shape: Shape

    @property
    def added(self) -> int:
        """The leading dims, which the shape lacks."""
        return len(self.whole) - len(self.shape)

    @property
    def dims(self) -> tuple[int, ...]:
        """The dims to sum over."""
        added, shape = self.added, self.shape
        sizes = enumerate(self.whole)
        return tuple([d for d, n in sizes if d < added or (shape[d - added] == 1 and n != 1)])


class SumTo(Op):
    """The sum over the dims along which `shape` was broadcast to the input's shape."""

    name = "sum_to"
    attributes = SumToAttributes
    order = "row-major"
    saves = ()

    def infer(self, x: Meta, attrs: SumToAttributes) -> Meta:
        return x.like(shape=attrs.shape)

    def rule(self, axis: Axis, x: Meta, attrs: SumToAttributes) -> Rule:
        found = [Signature((partial_sum,), (partial_sum,))]
        for d in range(len(attrs.whole)):
            of_y = partial_sum if d in attrs.dims else split(d - attrs.added)
            found.append(Signature((split(d),), (of_y,)))
        return found

    def bind(self, local: Local, attrs: SumToAttributes) -> Kernel:
        dims, added, target = attrs.dims, attrs.added, local.output_shape()
        if len(dims) == added or not added:
            return local.bind(kernels.total, dims, not added, None)
        total = local.pick(kernels.total)
        return lambda x: total(x, dims, False, None).reshape(target)

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta, attrs: SumToAttributes) -> Gradients:
        return (expand(dy, attrs.whole),)


_sum_to = unary(SumTo())


@register_function
def sum_to(grad: Tensor, meta: Meta) -> Tensor:
    """A gradient reduced to the shape and dtype of its tensor.

    Undoes the broadcasting and the type promotion of that tensor; nearly free without either.
    """
    mine = grad.meta
    if mine.shape != meta.shape:
        grad = _sum_to(grad, mine.shape, meta.shape)
    if mine.dtype is not meta.dtype:
        made = low_copy(grad, meta.dtype)
        grad = cast(grad, meta.dtype) if made is None else made
    return grad
