"""Sums and means over dims, and the ops that their gradients need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import torch

from ...kernels import pointwise_ref as elementwise, reduce_ref as kernels
from ..convert import box
from ..dispatcher import unary
from ..meta import Meta
from ..names import register_function
from ..op import Kernel, Local, Op
from ..sbp import Sbp, broadcast, partial_max, partial_min, partial_sum, split
from ..signature import Axis, Rule, Signature, pointwise_of
from ..tensor import Tensor
from .cast import cast, is_widening
from .dims import expand
from .pointwise import fitting

Dims: TypeAlias = int | tuple[int, ...] | None  # None: all


def dims_of(dim: Dims, ndim: int) -> tuple[int, ...]:
    """The reduced dims, counted from 0; None and () mean all of them.

    >>> dims_of(-1, 3), dims_of(None, 2)
    ((2,), (0, 1))
    """
    if dim is None or dim == ():
        return tuple(range(ndim))
    given = (dim,) if isinstance(dim, int) else dim
    return tuple(d % ndim if ndim else 0 for d in given)


def hashable(dim: Any) -> Any:
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
    assert meta is not None
    dims = dims_of(dim, meta.ndim)
    return len([sbp for sbp in meta.nd_sbp if sbp.kind == "S" and sbp.dim in dims]) > 0


def count_along(meta: Meta, dim: Dims) -> int:
    """How many elements each element of the result is reduced from."""
    return math.prod([meta.shape[d] for d in dims_of(dim, meta.ndim)] if meta.ndim else [])


def without_partials(x: Tensor) -> Tensor:
    """`x` with its partial axes reduced: for small tensors that meet large split ones.

    Otherwise their sum might be laid out as partial, and the large one be communicated.
    """
    if has_no_partials(x.meta):
        return x
    nd_sbp = tuple([broadcast if sbp.is_partial else sbp for sbp in x.meta.nd_sbp])
    return box(x, x.meta.like(nd_sbp=nd_sbp))


def has_no_partials(meta: Meta) -> bool:
    """Whether no axis is partial."""
    return not [sbp for sbp in meta.nd_sbp if sbp.is_partial]


class SpreadAttributes(NamedTuple):
    """The shape to reach, and the dims that its reduction had."""

    shape: tuple[int, ...]
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
            return lambda x: div(x, count).reshape(middle).expand(target)
        if keepdim or len(dims) == len(shape):
            return lambda x: x.expand(target)
        return lambda x: x.reshape(middle).expand(target)

    def vjp(
        self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, attrs: SpreadAttributes
    ) -> tuple[Tensor]:
        reduce = _mean if self.shares and y.numel else _sum
        return (reduce(dy, attrs.dim, attrs.keepdim, None),)


spread = unary(Spread("spread", shares=False))
_spread_shares = unary(Spread("spread_shares", shares=True))


def as_split(grad: Tensor, x: Meta) -> Tensor:
    """A replicated gradient laid out as `x`, which it is for: each rank keeps its part only.

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
    """The sum over dims."""

    name = "sum"
    attributes = ReduceAttributes
    saves = ()
    kernel = staticmethod(kernels.total)

    def rule(self, axis: Axis, x: Meta, attrs: ReduceAttributes) -> Rule:
        passes = (partial_sum,) if is_widening(x.dtype, attrs.dtype or x.dtype) else ()
        return reduction(x.ndim, attrs.dim, attrs.keepdim, partial_sum, passes)

    def bind(self, local: Local, attrs: ReduceAttributes) -> Kernel:
        dim, keepdim, dtype = attrs
        kernel = local.pick(kernels.total)
        if kernel is kernels.total and dim is None and not keepdim and dtype is None:
            return torch.sum
        return partial(kernel, dim=dim, keepdim=keepdim, dtype=dtype)

    def vjp(
        self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, attrs: ReduceAttributes
    ) -> tuple[Tensor]:
        grad = cast(dy, x.dtype)
        return (as_split(spread(grad, x.shape, attrs.dim, attrs.keepdim), x),)


_sum = unary(Sum())


@register_function
def sum(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """The sum over `dim` (None: over all); integers and bools are summed as int64.

    Over a split dim the result is a partial sum: nothing is communicated.
    """
    if type(dim) is list:
        dim = tuple(dim)
    return _sum(input, dim, keepdim, dtype)


class Mean(Op):
    """The mean over dims: over a split dim, the sum of each part over the whole count."""

    name = "mean"
    attributes = ReduceAttributes
    saves = ()
    kernel = staticmethod(kernels.mean)

    def rule(self, axis: Axis, x: Meta, attrs: ReduceAttributes) -> Rule:
        passes = (partial_sum,) if is_widening(x.dtype, attrs.dtype or x.dtype) else ()
        return reduction(x.ndim, attrs.dim, attrs.keepdim, partial_sum, passes)

    def bind(self, local: Local, attrs: ReduceAttributes) -> Kernel:
        dim, keepdim, dtype = attrs
        whole = local.inputs[0]
        assert whole is not None
        if is_split_along(whole, dim):
            count = count_along(whole, dim)
            part = local.pick(kernels.partial_mean)
            return partial(part, dim=dim, keepdim=keepdim, dtype=dtype, count=count)
        kernel = local.pick(kernels.mean)
        if kernel is kernels.mean and dim is None and not keepdim and dtype is None:
            return torch.mean
        return partial(kernel, dim=dim, keepdim=keepdim, dtype=dtype)

    def vjp(
        self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, attrs: ReduceAttributes
    ) -> tuple[Tensor]:
        grad = cast(dy, x.dtype)
        return (as_split(_spread_shares(grad, x.shape, attrs.dim, attrs.keepdim), x),)


_mean = unary(Mean())


@register_function
def mean(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """The mean over `dim` (None: over all), of a floating point or complex tensor.

    Over a split dim the result is a partial sum; uneven parts count by their size.
    """
    if type(dim) is list:
        dim = tuple(dim)
    return _mean(input, dim, keepdim, dtype)


class SumToAttributes(NamedTuple):
    """The input's logical shape, and the shape that was broadcast to it.

    A dim of the input that other axes split into parts of size 1 must not look like one of size 1.
    """

    whole: tuple[int, ...]
    shape: tuple[int, ...]


class SumTo(Op):
    """The sum over the dims along which `shape` was broadcast to the input's shape."""

    name = "sum_to"
    attributes = SumToAttributes
    saves = ()

    def kernel(
        self, x: torch.Tensor, whole: tuple[int, ...], shape: tuple[int, ...]
    ) -> torch.Tensor:
        return x.sum_to_size(shape)

    def rule(self, axis: Axis, x: Meta, attrs: SumToAttributes) -> Rule:
        whole, shape = attrs
        added = len(whole) - len(shape)
        found = [Signature((partial_sum,), (partial_sum,))]
        for d, size in enumerate(whole):
            if d < added or (shape[d - added] == 1 and size != 1):
                found.append(Signature((split(d),), (partial_sum,)))
            else:
                found.append(Signature((split(d),), (split(d - added),)))
        return found

    def bind(self, local: Local, attrs: SumToAttributes) -> Kernel:
        whole, shape = attrs
        added = len(whole) - len(shape)
        dims = [
            d for d in range(len(whole)) if d < added or (shape[d - added] == 1 and whole[d] != 1)
        ]
        target = local.output_shape()
        total = local.pick(kernels.total)
        kernel = partial(total, dim=tuple(dims), keepdim=not added, dtype=None)
        if len(dims) == added or not added:
            return kernel
        return lambda x: kernel(x).reshape(target)

    def vjp(
        self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, attrs: SumToAttributes
    ) -> tuple[Tensor]:
        return (expand(dy, attrs.whole),)


_sum_to = unary(SumTo())


@register_function
def sum_to(grad: Tensor, meta: Meta) -> Tensor:
    """A gradient reduced to the shape and dtype of the tensor it is for.

    Undoes the broadcasting and the type promotion of that tensor; nearly free without either.
    """
    mine = grad.meta
    if mine.shape != meta.shape:
        grad = _sum_to(grad, mine.shape, meta.shape)
    if mine.dtype is not meta.dtype:
        grad = cast(grad, meta.dtype)
    return grad


class ConstantAttributes(NamedTuple):
    """The number."""

    value: float


class ConstantLike(Op):
    """One number, in the input's shape and dtype: broadcast where the input is partial."""

    name = "constant_like"
    attributes = ConstantAttributes
    saves = ()
    differentiable = False

    def infer(self, x: Meta, attrs: ConstantAttributes) -> Meta:
        return x

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
