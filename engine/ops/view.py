"""reshape and related ops, which keep the elements in row-major order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import torch

from ...errors import OnefoldRuntimeError, ShapeError
from ..dispatcher import view_op
from ..meta import Meta
from ..names import names, register_function, register_name
from ..op import Kernel, Local, Op
from ..signature import Axis, Rule
from ..tensor import Tensor
from ..views import base_of, unlink
from .data_movement import follows, passes, unpack, wrap
from .strides import has_contiguous_strides, has_strides_for

Shape = tuple[int, ...]
Group = tuple[Shape, Shape]  # input dims and output dims that hold the same elements


@lru_cache(maxsize=4096)
def groups(before: Shape, after: Shape) -> tuple[Group, ...]:
    """The finest groups of dims over which a reshape acts on its own; dims of size 1 are in none.

    Empty tensors have a group for each equal dim from either end only.

    >>> groups((6, 4, 5), (2, 3, 20))
    (((0,), (0, 1)), ((1, 2), (2,)))
    """
    left = [dim for dim, size in enumerate(before) if size != 1]
    right = [dim for dim, size in enumerate(after) if size != 1]
    if 0 in before:
        return _equal_ends(before, after)
    found: list[Group] = []
    while left and right:
        ins, outs = [left.pop(0)], [right.pop(0)]
        size_in, size_out = before[ins[0]], after[outs[0]]
        while size_in != size_out:
            if size_in < size_out:
                ins.append(left.pop(0))
                size_in *= before[ins[-1]]
            else:
                outs.append(right.pop(0))
                size_out *= after[outs[-1]]
        found.append((tuple(ins), tuple(outs)))
    return tuple(found)


def _equal_ends(before: Shape, after: Shape) -> tuple[Group, ...]:
    shorter = min(len(before), len(after))
    front = 0
    while front < shorter and before[front] == after[front]:
        front += 1
    back = 0
    while back < shorter - front and before[-1 - back] == after[-1 - back]:
        back += 1
    ends = [(dim, dim) for dim in range(front)]
    ends += [(len(before) - 1 - dim, len(after) - 1 - dim) for dim in range(back)]
    return tuple(((i,), (j,)) for i, j in ends)


def _outermost(dims: Shape, whole: Shape, taken: int) -> tuple[int, int]:
    """The dim that the next split of a group must take, and what is left of its size there.

    `taken` is the number of parts into which earlier axes have split the group, outermost first.
    """
    for dim in dims:
        size = whole[dim]
        if taken % size:
            return dim, size // taken
        taken //= size
    return dims[-1], 1


def carried(axis: Axis, seen: Shape, before: Shape, after: Shape) -> list[tuple[int, int]]:
    """The pairs of dims (in, out) for which a split of the one is a split of the other.

    A dim that the reshape leaves alone goes with any split. Otherwise both must be the outermost
    factor of their group and divisible by the parts, so that the shards hold the same elements.
    """
    pairs = []
    ragged = axis.ragged[0] if axis.ragged else frozenset()
    for ins, outs in groups(before, after):
        if len(ins) == len(outs) == 1:
            pairs.append((ins[0], outs[0]))
            continue
        if ragged.intersection(ins):
            continue
        taken = prod(before[dim] for dim in ins) // max(1, prod(seen[dim] for dim in ins))
        i, left = _outermost(ins, before, taken)
        j, right = _outermost(outs, after, taken)
        if left % axis.parts == 0 and right % axis.parts == 0:
            pairs.append((i, j))
    return pairs


class View(Op):
    """The tensor's elements, in row-major order, under another shape; one size may be -1.

    A split dim keeps its split when it is the outermost factor of what it becomes and the new dim
    is divisible too; otherwise the tensor is gathered. Raises OnefoldRuntimeError when the
    numbers of elements differ.

    Example:
        >>> onefold.ones(4, 6).view(2, -1).shape
        torch.Size([2, 12])
    """

    name = "view"
    saves = ()
    aliases = makes_views = True
    flops_per_element = 0.0

    def kernel(self, x: torch.Tensor, *shape: Any) -> torch.Tensor:
        return torch.reshape(x, unpack(shape))

    def rule(self, axis: Axis, x: Meta, *shape: Any) -> Rule:
        before = axis.whole[0] if axis.whole else tuple(x.shape)
        pairs = carried(axis, tuple(x.shape), before, _resolved(before, unpack(shape)))
        return [*follows(pairs), *passes([x])]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        reshape = local.pick(torch.reshape)
        shape = local.output_shape()
        return lambda x: reshape(x, shape)

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, *attrs: Any) -> Any:
        return (view(dy, x.shape),)

    def scatter_view(self, x: Tensor, value: Tensor, index: int, *shape: Any) -> Tensor:
        return view(value, x.shape)


def _resolved(before: Shape, shape: Shape) -> Shape:
    if -1 not in shape:
        return tuple(shape)
    rest = -prod(shape)
    return tuple(prod(before) // rest if size == -1 else size for size in shape)


view: Callable[..., Tensor] = register_name("view", view_op(View()))


@register_function
def reshape(input: Tensor, *shape: Any) -> Tensor:
    """The elements, in row-major order, under another shape: a view wherever torch makes one.

    That depends on the steps by which `input` is a view, never on its layout: a base counts as
    lying in memory row by row, so `x.reshape(-1)` is a view, and `x.t().reshape(-1)` is not.
    """
    y = view(input, *shape)
    if input.shared and base_of(input) is not None and not has_strides_for(input, y.meta.shape):
        return unlink(y)
    return y


@register_function
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor under the shape of another."""
    return view(self, other.meta.shape)


@register_function
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """`reshape` to the shape of another tensor."""
    return reshape(self, other.meta.shape)


@register_function
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dims `start_dim` to `end_dim` as one; a 0-d tensor becomes 1-d."""
    shape = input.meta.shape
    start, end = wrap(start_dim, len(shape)), wrap(end_dim, len(shape))
    if start > end:
        raise OnefoldRuntimeError(
            f"flatten() has invalid args: start_dim {start_dim} cannot come after end_dim {end_dim}"
        )
    if start == end and shape:
        return input
    merged = prod(shape[start : end + 1])
    return reshape(input, (*shape[:start], merged, *shape[end + 1 :]))


@register_function
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Dim `dim` as several dims of these sizes, of which one may be -1.

    Raises ShapeError when their product is not the dim's size.
    """
    shape = input.meta.shape
    dim = wrap(dim, len(shape))
    if not sizes:
        raise OnefoldRuntimeError("unflatten: sizes must be non-empty")
    new = _resolved((shape[dim],), tuple(sizes)) if prod(sizes) else tuple(sizes)
    if prod(new) != shape[dim]:
        raise ShapeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} "
            f"({shape[dim]}) in the input tensor"
        )
    return view(input, (*shape[:dim], *new, *shape[dim + 1 :]))


@register_function
def ravel(input: Tensor) -> Tensor:
    """All elements in one dim: a view of a contiguous tensor, else a copy, as in torch."""
    return view(contiguous(input), (-1,) if input.meta.numel else (0,))


@register_function
def contiguous(self: Tensor, memory_format: Any = torch.contiguous_format) -> Tensor:
    """The tensor itself, or a tensor of its own for a view that is not row by row in its base."""
    return self if is_contiguous(self) else unlink(view(self, self.meta.shape))


@register_function
def is_contiguous(self: Tensor, memory_format: Any = torch.contiguous_format) -> bool:
    """Whether the tensor is row by row in its base, which itself counts as contiguous."""
    return not self.shared or base_of(self) is None or has_contiguous_strides(self)


def _at_least(ndim: int, place: Any, tensors: tuple[Any, ...]) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        x = tensors[0]
        return x if x.ndim >= ndim else view(x, place(tuple(x.shape)))
    return tuple(_at_least(ndim, place, (x,)) for x in unpack(tensors))


@register_function
def atleast_1d(*tensors: Any) -> Any:
    """Each tensor with at least one dim."""
    return _at_least(1, lambda shape: (1,), tensors)


@register_function
def atleast_2d(*tensors: Any) -> Any:
    """Each tensor with at least two dims; a vector becomes a row."""
    return _at_least(2, lambda shape: (1, *shape, *[1] * (not shape)), tensors)


@register_function
def atleast_3d(*tensors: Any) -> Any:
    """Each tensor with at least three dims; a vector stands in the middle one."""
    return _at_least(3, lambda s: (*s, 1) if len(s) == 2 else (1, *(s or (1,)), 1), tensors)


@register_function
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """[..., c * r * r, h, w] to [..., c, h * r, w * r], as torch's (Shi et al., 2016)."""
    r = upscale_factor
    shape = input.meta.shape
    if len(shape) < 3 or r <= 0 or shape[-3] % (r * r):
        raise OnefoldRuntimeError(
            f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
            f"of upscale_factor, but got shape {tuple(shape)} and upscale_factor={r}"
        )
    *batch, channels, height, width = shape
    lead = len(batch)
    x = view(input, *batch, channels // (r * r), r, r, height, width)
    order = (*range(lead), lead, lead + 3, lead + 1, lead + 4, lead + 2)
    return reshape(names.permute(x, *order), *batch, channels // (r * r), height * r, width * r)


@register_function
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """[..., c, h * r, w * r] to [..., c * r * r, h, w]: the inverse of `pixel_shuffle`."""
    r = downscale_factor
    shape = input.meta.shape
    if len(shape) < 3 or r <= 0 or shape[-1] % r or shape[-2] % r:
        raise OnefoldRuntimeError(
            f"pixel_unshuffle expects height and width to be divisible by downscale_factor, but "
            f"got shape {tuple(shape)} and downscale_factor={r}"
        )
    *batch, channels, height, width = shape
    lead = len(batch)
    x = view(input, *batch, channels, height // r, r, width // r, r)
    order = (*range(lead), lead, lead + 2, lead + 4, lead + 1, lead + 3)
    return reshape(names.permute(x, *order), *batch, channels * r * r, height // r, width // r)
