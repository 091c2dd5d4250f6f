"""reshape and related ops, which keep the elements in row-major order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import takewhile
from math import prod
from typing import Self

import torch

from ...errors import OnefoldRuntimeError, ShapeError
from ..argument_types import Dims
from ..dispatcher import view_op
from ..meta import Meta, Shape
from ..names import names, register_function, register_name
from ..op import Kernel, Local
from ..signature import Axis, Rule
from ..tensor import Tensor
from ..view_places import Chain, chain_of, on_one, strides_of
from ..views import base_of, unlink
from .data_movement import Rearrangement, follows, passes, unpack, wrap
from .memory_formats import in_format, is_in_format

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
    front = _equal_at_first(zip(before, after, strict=False))
    behind = zip(reversed(before[front:]), reversed(after[front:]), strict=False)
    ends = [(dim, dim) for dim in range(front)]
    for dim in range(_equal_at_first(behind)):
        ends.append((len(before) - 1 - dim, len(after) - 1 - dim))
    return tuple(((i,), (j,)) for i, j in ends)


def _equal_at_first(pairs: Iterable[tuple[int, int]]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def _outermost(dims: Shape, whole: Shape, taken: int) -> tuple[int, int]:
    """The dim that the next split of a group must take, and the remaining size.

    `taken` is the number of parts into which earlier axes have split the group, outermost first.
    """
    for dim in dims:
        size = whole[dim]
        if taken % size:
            return dim, size // taken
        taken //= size
    return dims[-1], 1


def carried(axis: Axis, seen: Shape, before: Shape, after: Shape) -> list[tuple[int, int]]:
    """The pairs of dims (in, out) for which a split of one is a split of the other.

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


def _ones(x: Meta, before: Shape, after: Shape) -> list[tuple[int, int]]:
    """The pairs of dims (in, out) of size 1 of which the one is split: one rank has all elements.

    Where there are several, the second is where the first was, if possible.
    """
    split_dims = {sbp.dim for sbp in x.nd_sbp if sbp.kind == "S" and before[sbp.dim] == 1}
    places = [dim for dim, size in enumerate(after) if size == 1]
    if not places or 0 in before:
        return []
    pairs = []
    for i in sorted(split_dims):
        ahead = prod(before[:i])
        pairs.append((i, min(places, key=lambda j: (prod(after[:j]) != ahead, abs(j - i)))))
    return pairs


class NewShape(tuple[int, ...]):
    """The sizes, given one by one or as one sequence."""

    def __new__(cls, *sizes: Dims) -> Self:
        return super().__new__(cls, unpack(sizes))


class View(Rearrangement[NewShape]):
    """The tensor's elements, in row-major order, in another shape; one size may be -1.

    A split dim keeps its split when it is the outermost factor of what it becomes and the new dim
    is divisible too; otherwise the tensor is gathered. Raises OnefoldRuntimeError when the
    numbers of elements differ.

    Example:
        >>> onefold.ones(4, 6).view(2, -1).shape
        torch.Size([2, 12])
    """

    name = "view"
    attributes = NewShape

    def kernel(self, x: torch.Tensor, *shape: int) -> torch.Tensor:
        return torch.reshape(x, shape)

    def deduce(self, x: Meta, attrs: NewShape) -> Meta | None:
        if any(type(size) is not int or size < -1 for size in attrs):
            return None
        if -1 in attrs and (0 in attrs or attrs.count(-1) > 1):
            return None
        shape = _resolved(x.shape, attrs)
        return x.like(shape) if prod(shape) == x.numel else None

    def rule(self, axis: Axis, x: Meta, attrs: NewShape) -> Rule:
        before = axis.whole[0] if axis.whole else tuple(x.shape)
        after = _resolved(before, attrs)
        pairs = carried(axis, tuple(x.shape), before, after) + _ones(x, before, after)
        return [*follows(pairs), *passes([x])]

    def bind(self, local: Local, attrs: NewShape) -> Kernel:
        return local.bind(torch.reshape, local.output_shape())

    def gradient(self, dy: Tensor, x: Meta, attrs: NewShape) -> Tensor:
        return view(dy, x.shape)


def _resolved(before: Shape, shape: Shape) -> Shape:
    if -1 not in shape:
        return tuple(shape)
    rest = -prod(shape)
    return tuple(prod(before) // rest if size == -1 else size for size in shape)


view = register_name("view", view_op(View()))


@register_function
def reshape(input: Tensor, *sizes: Dims, shape: Dims | None = None) -> Tensor:
    """The elements, in row-major order, in another shape: a view wherever torch makes one.

    That depends on the steps by which `input` is a view, never on its layout: a base counts as
    lying in memory row by row, so `x.reshape(-1)` is a view, and `x.t().reshape(-1)` is not.
    """
    y = view(input, *sizes) if shape is None else view(input, *sizes, shape)
    try:
        base = input._base
    except AttributeError:  # as `base_of`, without a call
        base = input._base = None
    if base is not None and not _can_view(chain_of(input), y.meta.shape):
        return unlink(y)
    return y


@register_function
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor in the shape of another."""
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
def contiguous(
    self: Tensor, memory_format: torch.memory_format = torch.contiguous_format
) -> Tensor:
    """The tensor itself, or a copy of a view that is not contiguous in its base.

    With `channels_last` or `channels_last_3d` it is another tensor, whose memory is in this format.
    Raises OnefoldRuntimeError for a format of another number of dims.
    """
    if memory_format is not torch.contiguous_format:
        return in_format(self, memory_format)
    return self if is_contiguous(self) else unlink(view(self, self.meta.shape))


@register_function
def is_contiguous(
    self: Tensor, memory_format: torch.memory_format = torch.contiguous_format
) -> bool:
    """Whether the tensor is contiguous in its base; a base itself is contiguous.

    Of `channels_last` and `channels_last_3d` the memory of this process's shards tells it.
    """
    if memory_format is not torch.contiguous_format:
        return is_in_format(self, memory_format)
    return not self.shared or base_of(self) is None or _is_contiguous(chain_of(self))


def at_least(x: Tensor, ndim: int) -> Tensor:
    """A tensor with at least so many dims, as by `atleast_1d`, `atleast_2d` or `atleast_3d`."""
    shape = tuple(x.shape)
    if len(shape) >= ndim:
        return x
    if len(shape) < 2 <= ndim:
        shape = (1, *shape)
    return view(x, (*shape, *[1] * (ndim - len(shape))))


def _at_least(
    tensors: tuple[Tensor | Sequence[Tensor], ...], ndim: int
) -> Tensor | tuple[Tensor, ...]:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return at_least(tensors[0], ndim)
    return tuple(at_least(x, ndim) for x in unpack(tensors))


@register_function
def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Each tensor with at least one dim."""
    return _at_least(tensors, 1)


@register_function
def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Each tensor with at least two dims; a vector becomes a row."""
    return _at_least(tensors, 2)


@register_function
def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Each tensor with at least three dims; a vector becomes the middle one."""
    return _at_least(tensors, 3)


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
    parts = (channels // (r * r), r, r, height, width)
    return _rearranged(input, batch, parts, (0, 3, 1, 4, 2), (parts[0], height * r, width * r))


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
    parts = (channels, height // r, r, width // r, r)
    return _rearranged(input, batch, parts, (0, 2, 4, 1, 3), (channels * r * r, *parts[1::2]))


def _rearranged(x: Tensor, batch: list[int], parts: Shape, order: Shape, last: Shape) -> Tensor:
    """The dims after `batch` as these parts, in another order, and then as the last dims."""
    lead = len(batch)
    moved = names.permute(view(x, *batch, *parts), *range(lead), *(lead + i for i in order))
    return reshape(moved, *batch, *last)


@lru_cache(maxsize=4096)
def _can_view(chain: Chain, shape: Shape) -> bool:
    """Whether the strides allow a view of another shape."""
    try:
        on_one(chain).view(shape)
    except RuntimeError:
        return False
    return True


def strides(x: Tensor) -> tuple[Shape, int]:
    """The strides of a tensor in its base, and its offset there."""
    return strides_of(chain_of(x) if x.shared else (x.meta.shape,))


@lru_cache(maxsize=4096)
def _is_contiguous(chain: Chain) -> bool:
    """Whether the strides are those of row-major order."""
    return on_one(chain).is_contiguous()
