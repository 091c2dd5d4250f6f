"""Concatenation and splitting: cat, stack, split, chunk and unbind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import NamedTuple, cast

import torch

from ...errors import OnefoldRuntimeError, OnefoldTypeError
from ...kernels.common_shapes import joined_shape
from ..argument_types import Dims
from ..dispatcher import general_of, several_of
from ..meta import Meta, Shape
from ..names import register_function
from ..op import Arg, Gradients, Kernel, Local, Needs
from ..out_tensors import give_to
from ..sbp import broadcast, split as split_sbp
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .data_movement import DataMovement, OneDim, all_but, match, passes, wrap
from .result_shapes import COMMON, alike, is_dim
from .slicing import one_dim, set_slice
from .view import reshape, view


class CatAttributes(NamedTuple):
    """The dim, and its size in each tensor."""

    dim: int
    sizes: Shape


class _Join(DataMovement):
    """The base of ops that join tensors along a dim."""

    order = "row-major"
    join: Kernel

    def bind(self, local: Local, attrs: Arg) -> Kernel:
        join, dim = local.pick(self.join), attrs.dim
        if None in local.inputs:
            return lambda *parts: join(_filled(parts, *attrs), dim)
        return local.around(join, lambda *parts: join(parts, dim))


class Cat(_Join):
    """The concatenation of tensors along a dim.

    An absent tensor stands for zeros of its size. A 1-d tensor of size 0 fits anywhere, as in
    torch.
    """

    name = "cat"
    attributes = CatAttributes
    join = staticmethod(torch.cat)

    def kernel(self, *args: Arg) -> torch.Tensor:
        *parts, dim, sizes = args
        return torch.cat(_filled(parts, dim, sizes), dim)

    def deduce(self, *args: Arg) -> Meta | None:
        *parts, (dim, sizes) = args
        shape = None
        if alike(*parts, dtypes=COMMON):
            like = max((part.shape for part in parts if part is not None), key=len)
            shapes = [
                (*like[:dim], size, *like[dim + 1 :]) if part is None else part.shape
                for part, size in zip(parts, sizes, strict=True)
            ]
            joined = [each for each in shapes if each != (0,)] if len(like) > 1 else shapes
            shape = joined_shape(joined, dim)
        return None if shape is None else next(filter(None, parts)).like(shape)

    def rule(self, axis: Axis, *args: Arg) -> Rule:
        *given, attrs = args
        metas = [meta for meta in given if meta is not None]
        ndim = max(meta.ndim for meta in metas)
        found = []
        for i in range(ndim):
            if i != wrap(attrs.dim, ndim):
                ins = tuple(split_sbp(i) if meta.ndim == ndim else broadcast for meta in metas)
                found.append(Signature(ins, (split_sbp(i),)))
        return [*found, *passes(metas)]

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, *args: Arg) -> Gradients:
        *metas, attrs = args
        if len(metas) == 1:
            return (dy,)
        parts = split(dy, attrs.sizes, attrs.dim)
        return [
            # An empty 1-d tensor among others has another shape than its part of the gradient.
            need and match(reshape(part, meta.shape), meta)
            for need, part, meta in zip(needs, parts, metas, strict=True)
        ]


def _filled(
    parts: Sequence[torch.Tensor | None], dim: int, sizes: Shape | None = None
) -> list[torch.Tensor]:
    """The parts, with zeros for absent ones: of these sizes along the dim, or of one shape."""
    like = max((part for part in parts if part is not None), key=lambda part: part.dim())
    shapes = [list(like.shape) for _ in parts]
    if sizes is not None:
        for shape, size in zip(shapes, sizes, strict=True):
            shape[dim] = size
    return [
        like.new_zeros(()).expand(shape) if part is None else part
        for part, shape in zip(parts, shapes, strict=True)
    ]


class Stack(_Join):
    """Tensors of one shape along a new dim; an absent tensor stands for zeros."""

    name = "stack"
    attributes = OneDim
    join = staticmethod(torch.stack)

    def kernel(self, *args: Arg) -> torch.Tensor:
        *parts, dim = args
        return torch.stack(_filled(parts, dim), dim)

    def infer(self, *args: Arg) -> Meta | tuple[Meta, ...]:
        like: Meta = next(filter(None, args))
        for index, part in enumerate(args[:-1]):
            if part is not None and part.shape != like.shape:
                raise OnefoldRuntimeError(
                    f"stack expects each tensor to be equal size, but got {list(like.shape)} at "
                    f"entry {args.index(like)} and {list(part.shape)} at entry {index}"
                )
        return super().infer(*args)

    def deduce(self, *args: Arg) -> Meta | None:
        *parts, attrs = args
        like: Meta
        like, *others = filter(None, parts)
        ndim = like.ndim + 1
        same = alike(*parts, dtypes=COMMON) and all(part.shape == like.shape for part in others)
        if not same or not is_dim(attrs.dim, ndim):
            return None
        dim = attrs.dim % ndim
        return like.like(shape=(*like.shape[:dim], len(parts), *like.shape[dim:]))

    def rule(self, axis: Axis, *args: Arg) -> Rule:
        *given, attrs = args
        metas = [meta for meta in given if meta is not None]
        ndim, count = metas[0].ndim, len(metas)
        dim = wrap(attrs.dim, ndim + 1)
        found = [
            Signature((split_sbp(i),) * count, (split_sbp(i + (i >= dim)),)) for i in range(ndim)
        ]
        return [*found, *passes(metas)]

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, *args: Arg) -> Gradients:
        *metas, attrs = args
        parts = zip(needs, unbind(dy, attrs.dim), metas, strict=True)
        return [need and match(part, meta) for need, part, meta in parts]


_PARTS = "part0? part1? part2? part3?"
join_parts = general_of(Cat(), _PARTS)
stack_parts = general_of(Stack(), _PARTS)


def listed(tensors: object, what: str) -> tuple[Tensor, ...]:
    """The tensors of a list or tuple; raises unless there are some, and nothing else."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, (tuple, list)):
        raise OnefoldTypeError(
            f"{what}(): argument 'tensors' must be a tuple of Tensors, not {type(tensors).__name__}"
        )
    if not tensors:
        raise OnefoldRuntimeError(f"{what} expects a non-empty list of Tensors")
    for index, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise OnefoldTypeError(
                f"{what}: tensors[{index}] must be an onefold Tensor, not {type(tensor).__name__}"
            )
    return tuple(tensors)


@register_function
def cat(
    tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None, out: Tensor | None = None
) -> Tensor:
    """The concatenation of the tensors along `dim`.

    Splits of other dims stay; along a split dim the tensors are gathered. Raises
    OnefoldRuntimeError when other sizes differ.
    """
    if out is not None:
        return give_to(out, cat(tensors, dim, axis=axis))
    parts = listed(tensors, "cat")
    metas = tuple([part.meta for part in parts])
    return join_parts(parts, *_cat_attributes(metas, dim if axis is None else axis))


@lru_cache(maxsize=4096)
def _cat_attributes(metas: tuple[Meta, ...], dim: int) -> CatAttributes:
    ndim = max(meta.ndim for meta in metas)
    dim = wrap(dim, ndim)
    sizes = [meta.shape[dim] if meta.ndim == ndim and ndim else 0 for meta in metas]
    return CatAttributes(dim, tuple(sizes))


@register_function
def stack(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Tensors of one shape along a new dim `dim`."""
    if out is not None:
        return give_to(out, stack(tensors, dim))
    return stack_parts(listed(tensors, "stack"), dim)


# Parting.

Parts = tuple[Tensor | None, ...]


class SplitAttributes(NamedTuple):
    """The size of each part along the dim."""

    sizes: Shape
    dim: int


class Split(DataMovement):
    """Parts of given sizes along a dim; one op for each number of parts."""

    name = "split"
    attributes = SplitAttributes
    aliases = makes_views = True
    kernel = staticmethod(torch.split_with_sizes)

    def __init__(self, num_outputs: int, multiple_views: bool) -> None:
        self.num_outputs = num_outputs
        self.multiple_views = multiple_views

    def rule(self, axis: Axis, x: Meta, attrs: SplitAttributes) -> Rule:
        count = self.num_outputs
        return [*all_but(attrs.dim, x.ndim, 1, count), *passes([x], count)]

    def vjp(
        self, needs: Needs, dy: Parts, y: Sequence[Meta], x: Meta, attrs: SplitAttributes
    ) -> Gradients:
        return (join_parts(dy, attrs.dim, attrs.sizes),)

    def scatter_view(self, x: Tensor, value: Tensor, index: int, attrs: SplitAttributes) -> Tensor:
        sizes, dim = attrs
        start = sum(sizes[:index])
        return set_slice(x, value, one_dim(x.ndim, dim, (start, start + sizes[index], 1)))


class Unbind(DataMovement):
    """The slices along a dim; one op for each size of the dim."""

    name = "unbind"
    attributes = OneDim
    kernel = staticmethod(torch.unbind)
    aliases = makes_views = multiple_views = True

    def __init__(self, num_outputs: int) -> None:
        self.num_outputs = num_outputs

    def rule(self, axis: Axis, x: Meta, attrs: OneDim) -> Rule:
        count = self.num_outputs
        kept = [i for i in range(x.ndim) if i != attrs.dim]
        found = [Signature((split_sbp(i),), (split_sbp(j),) * count) for j, i in enumerate(kept)]
        return [*found, *passes([x], count)]

    def vjp(self, needs: Needs, dy: Parts, y: Sequence[Meta], x: Meta, attrs: OneDim) -> Gradients:
        return (stack_parts(dy, attrs.dim),)

    def scatter_view(self, x: Tensor, value: Tensor, index: int, attrs: OneDim) -> Tensor:
        return set_slice(x, value, one_dim(x.ndim, attrs.dim, index))


# An op is kept for good: the dispatcher has it in its tables, and another would be added to them.
@cache
def _split_op(count: int, multiple_views: bool) -> Callable[..., tuple[Tensor, ...]]:
    return several_of(Split(count, multiple_views), "x")


@cache
def _unbind_op(count: int) -> Callable[..., tuple[Tensor, ...]]:
    return several_of(Unbind(count), "x")


def split_by(x: Tensor, sizes: Shape, dim: int, multiple_views: bool = True) -> tuple[Tensor, ...]:
    """Parts of these sizes along a dim."""
    if len(sizes) == 1:
        if sizes[0] != x.shape[dim]:
            raise OnefoldRuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {x.shape[dim]} (input "
                f"tensor's size at dimension {dim}), but got split_sizes={list(sizes)}"
            )
        return (view(x, x.shape),)  # a tensor of its own, as each part is
    return _split_op(len(sizes), multiple_views)(x, sizes, dim)


def _chunk_sizes(size: int, length: int) -> Shape:
    """`size` in chunks of `length`, of which the last may be smaller."""
    if not size:
        return (0,)
    return tuple(min(length, size - start) for start in range(0, size, length))


@register_function
def split(
    tensor: Tensor,
    split_size_or_sections: Dims | None = None,
    dim: int = 0,
    *,
    split_size: Dims | None = None,
) -> tuple[Tensor, ...]:
    """Parts along `dim`: of one size (the last may be smaller), or of the sizes given.

    Splits of other dims stay; along a split dim the tensor is gathered. `split_size` is the
    method's name of the size in torch. Raises OnefoldRuntimeError when sizes do not add up.
    """
    if (split_size_or_sections is None) == (split_size is None):
        raise OnefoldTypeError(
            "split: pass one size or list of sizes, as split_size_or_sections or split_size, but "
            f"got {split_size_or_sections!r} and {split_size!r}"
        )
    if split_size_or_sections is None:
        split_size_or_sections = cast("Dims", split_size)
    if not tensor.ndim:
        raise OnefoldRuntimeError("split expects at least a 1-dimensional tensor")
    dim = wrap(dim, tensor.ndim)
    if not isinstance(split_size_or_sections, int):
        return split_with_sizes(tensor, split_size_or_sections, dim)
    length, size = split_size_or_sections, tensor.shape[dim]
    if length < 0 or (length == 0 and size):
        raise OnefoldRuntimeError(
            f"split expects split_size be {'non-negative' if length else 'positive'}, but got "
            f"split_size={length}"
        )
    return split_by(tensor, _chunk_sizes(size, length), dim)


@register_function
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of the sizes given along `dim`."""
    sizes = tuple(split_sizes)
    if not sizes:
        raise OnefoldRuntimeError("split_with_sizes needs at least one size, but got none")
    return split_by(input, sizes, wrap(dim, input.ndim))


@register_function
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` parts of one size along `dim`; the last may be smaller."""
    if not input.ndim:
        raise OnefoldRuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise OnefoldRuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    dim = wrap(dim, input.ndim)
    size = input.shape[dim]
    sizes = _chunk_sizes(size, -(-size // chunks)) if size else (0,) * chunks
    return split_by(input, sizes, dim)


@register_function
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along `dim`, which is removed."""
    if not input.ndim:
        raise OnefoldRuntimeError("unbind: Dimension specified as 0 but tensor has no dimensions")
    dim = wrap(dim, input.ndim)
    count = input.shape[dim]
    if count == 0:
        return ()
    if count == 1:
        return (view(input, *input.shape[:dim], *input.shape[dim + 1 :]),)
    return _unbind_op(count)(input, dim)
