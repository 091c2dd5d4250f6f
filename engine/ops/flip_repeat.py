"""flip, roll, rot90, repeat, repeat_interleave, tile, tril, triu and unfold."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import NamedTuple, Unpack

import torch

from ...errors import OnefoldRuntimeError, ShapeError
from ...kernels import pad_repeat_ref as kernels
from ..argument_types import Dims, TypedLayout
from ..dispatcher import unary, view_op
from ..meta import Meta, Shape
from ..names import register_function
from ..op import Kernel, Local
from ..out_tensors import give_to
from ..sbp import broadcast, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..values import whole
from ..views import unlink
from .creation import tensor
from .data_movement import (
    Mover,
    PerDim,
    Places,
    SomeDims,
    ViewOp,
    follows,
    overlapping,
    passes,
    sizes_of,
    unpack,
    untouched,
    wrap,
    wrap_all,
)
from .dims import transpose
from .index import take_rows
from .index_parsing import like_index
from .reduce import sum
from .result_shapes import COMMON, are_ints, is_dim, reduced
from .slicing import one_dim, set_slice, slice_by
from .view import flatten, reshape


class Flip(Mover[SomeDims]):
    """Dims in reverse order."""

    name = "flip"
    attributes = SomeDims
    order = "row-major"
    kernel = staticmethod(torch.flip)

    def deduce(self, x: Meta, attrs: SomeDims) -> Meta | None:
        ordinary = x.dtype in COMMON and reduced(x.shape, attrs.dims, False) is not None
        return x if ordinary else None

    def places(self, x: Meta, attrs: SomeDims) -> Places:
        return untouched(x.ndim, attrs.dims)

    def gradient(self, dy: Tensor, x: Meta, attrs: SomeDims) -> Tensor:
        return _flip(dy, attrs.dims)


class RollAttributes(NamedTuple):
    """The shifts, and their dims."""

    shifts: Shape
    dims: Shape


class Roll(Mover[RollAttributes]):
    """A circular shift along dims."""

    name = "roll"
    attributes = RollAttributes
    order = "row-major"
    kernel = staticmethod(torch.roll)

    def deduce(self, x: Meta, attrs: RollAttributes) -> Meta | None:
        shifts, dims = attrs
        ordinary = (
            x.ndim and x.dtype in COMMON and are_ints(shifts) and len(shifts) == len(dims) > 0
        )
        return x if ordinary and all(is_dim(dim, x.ndim) for dim in dims) else None

    def places(self, x: Meta, attrs: RollAttributes) -> Places:
        return untouched(x.ndim, attrs.dims)

    def gradient(self, dy: Tensor, x: Meta, attrs: RollAttributes) -> Tensor:
        return _roll(dy, tuple(-shift for shift in attrs.shifts), attrs.dims)


_flip = unary(Flip())
_roll = unary(Roll())


@register_function
def flip(input: Tensor, *args: Dims, dims: Dims | None = None) -> Tensor:
    """The tensor reversed along these dims, given one by one, as a tuple or by name."""
    dims = unpack(args) if dims is None else dims
    found = wrap_all(dims, input.ndim)
    if len(set(found)) < len(found):
        raise OnefoldRuntimeError(f"flip: a dim appears multiple times in the list of dims {dims}")
    return _flip(input, found)


@register_function
def fliplr(input: Tensor) -> Tensor:
    """The tensor reversed along dim 1."""
    if input.ndim < 2:
        raise OnefoldRuntimeError("Input must be >= 2-d.")
    return _flip(input, (1,))


@register_function
def flipud(input: Tensor) -> Tensor:
    """The tensor reversed along dim 0."""
    if not input.ndim:
        raise OnefoldRuntimeError("Input must be >= 1-d.")
    return _flip(input, (0,))


@register_function
def roll(input: Tensor, shifts: Dims, dims: Dims | None = None) -> Tensor:
    """A circular shift along `dims`; without `dims`, of the flattened tensor."""
    by = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    if dims is None or dims == ():
        if len(by) != 1:
            raise OnefoldRuntimeError("shifts and dimensions must align: give dims for each shift")
        return reshape(_roll(reshape(input, -1), by, (0,)), input.shape) if input.numel() else input
    along = wrap_all(dims, input.ndim)
    if len(by) != len(along):
        raise OnefoldRuntimeError(
            f"shifts and dimensions must align. shifts: {len(by)}, dims:{len(along)}"
        )
    return _roll(input, by, along)


@register_function
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Rotated `k` times by 90 degrees in the plane of two dims, from the first to the second."""
    if len(dims) != 2 or input.ndim < 2:
        raise OnefoldRuntimeError(
            f"expected total rotation dims == 2 of a tensor with >= 2 dims, but got dims={dims} "
            f"and {input.ndim} dims"
        )
    first, second = wrap_all(dims, input.ndim)
    if first == second:
        raise OnefoldRuntimeError(f"expected rotation dims to be different, but got dims={dims}")
    k = index(k) % 4  # not in place: k may be a tensor
    if k == 1:
        return transpose(_flip(input, (second,)), first, second)
    if k == 2:
        return _flip(input, (first, second))
    if k == 3:
        return _flip(transpose(input, first, second), (second,))
    return unlink(reshape(input, input.shape))  # torch copies here


# Repeating.


class Repeat(Mover[PerDim]):
    """The tensor repeated as a whole along each dim; missing dims are in front."""

    name = "repeat"
    attributes = PerDim
    order = "row-major"
    kernel = staticmethod(kernels.repeat)

    def deduce(self, x: Meta, attrs: PerDim) -> Meta | None:
        times = attrs.sizes
        ordinary = x.dtype in COMMON and are_ints(times) and min(times, default=0) >= 0
        if not ordinary or len(times) < x.ndim:
            return None
        sizes = (*(1,) * (len(times) - x.ndim), *x.shape)
        return x.like([count * size for count, size in zip(times, sizes, strict=True)])

    def rule(self, axis: Axis, x: Meta, attrs: PerDim) -> Rule:
        new = len(attrs.sizes) - x.ndim
        found = follows((j, j + new) for j, count in enumerate(attrs.sizes[new:]) if count == 1)
        # In a dim that is new each rank makes its own share of the copies.
        found += [Signature((broadcast,), (split(j),)) for j in range(new)]
        return [*found, *passes([x])]

    def bind(self, local: Local, attrs: PerDim) -> Kernel:
        new = len(attrs.sizes) - len(local.input_shape(0))
        return local.bind(self.kernel, (*local.output_shape()[:new], *attrs.sizes[new:]))

    def gradient(self, dy: Tensor, x: Meta, attrs: PerDim) -> Tensor:
        times = attrs.sizes
        new = len(times) - x.ndim
        parts = [part for j, count in enumerate(times[new:]) for part in (count, x.shape[j])]
        apart = reshape(dy, *times[:new], *parts)
        copies = (*range(new), *range(new, new + 2 * x.ndim, 2))
        return sum(apart, copies) if copies else dy


class InterleaveAttributes(NamedTuple):
    """The repeats of each element, and the dim."""

    times: int
    dim: int


class RepeatInterleave(Mover[InterleaveAttributes]):
    """Each element of a dim repeated in its place."""

    name = "repeat_interleave"
    attributes = InterleaveAttributes
    kernel = staticmethod(kernels.repeat_interleave)

    def rule(self, axis: Axis, x: Meta, attrs: InterleaveAttributes) -> Rule:
        count, dim = attrs
        found = follows(untouched(x.ndim, (dim,)))
        uneven = bool(axis.ragged) and dim in axis.ragged[0]
        if count == 1 or (x.shape[dim] % axis.parts == 0 and not uneven):
            found += follows([(dim, dim)])
        return [*found, *passes([x])]

    def gradient(self, dy: Tensor, x: Meta, attrs: InterleaveAttributes) -> Tensor:
        count, dim = attrs
        apart = reshape(dy, *x.shape[: dim + 1], count, *x.shape[dim + 1 :])
        return sum(apart, dim + 1)


_repeat = unary(Repeat())
_repeat_interleave = unary(RepeatInterleave())


@register_function
def repeat(self: Tensor, *sizes: Dims, repeats: Dims | None = None) -> Tensor:
    """The tensor repeated as a whole along each dim; more numbers than dims add dims in front."""
    times = sizes_of(sizes, repeats)
    if len(times) < self.ndim:
        raise OnefoldRuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            f"tensor: got {len(times)} for {self.ndim}"
        )
    return _repeat(self, times)


@register_function
def tile(input: Tensor, *sizes: Dims, dims: Dims | None = None) -> Tensor:
    """`repeat` where fewer numbers than dims mean the last ones."""
    times = sizes_of(sizes, dims)
    return _repeat(input, (*[1] * (input.ndim - len(times)), *times))


@register_function
def repeat_interleave(
    input: Tensor, repeats: Tensor | int, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element of `dim` repeated in place: `repeats` times, or as often as its entry says.

    Without `dim`, of the tensor seen as one dim. A tensor of numbers is read by every process,
    since the shape depends on it; with `output_size`, their sum, the host need not wait for a GPU.
    """
    if dim is None:
        input, dim = flatten(input), 0
    dim = wrap(dim, input.ndim)
    if isinstance(repeats, int):
        if repeats < 0:
            raise OnefoldRuntimeError(f"Repeats must be non-negative, but got {repeats}")
        return _repeat_interleave(input, repeats, dim)
    counts = whole(
        repeats,
        "The size of the result depends on them: make an index outside build(), with "
        "repeat_interleave(arange(n), repeats), and use index_select(x, dim, index) inside",
    )
    size = input.shape[dim]
    if counts.ndim > 1 or (counts.numel() != 1 and counts.numel() != size):
        raise ShapeError(
            f"repeats must have the same size as input along dim, but got repeats of shape "
            f"{list(counts.shape)} and size {size}"
        )
    counts = counts.reshape(-1).expand(size)
    if output_size is None or counts.device.type == "cpu":  # a GPU would have to be waited for
        output_size = _length(counts, output_size)
    index = torch.repeat_interleave(counts, output_size=output_size)
    return take_rows(input, (*[None] * dim, like_index(index, input)))


def _length(counts: torch.Tensor, given: int | None) -> int:
    """The sum of the numbers of repeats; raises where one is negative, or another was given."""
    if (counts < 0).any():
        raise OnefoldRuntimeError("repeats can not be negative")
    found = int(counts.sum())
    if given not in (None, found):
        raise OnefoldRuntimeError(
            f"output_size is {given}, but the repeats make {found} elements; give their sum, or "
            "leave output_size out"
        )
    return found


# Triangles.


class TriangleAttributes(NamedTuple):
    """The diagonal that bounds the triangle."""

    diagonal: int


class Triangle(Mover[TriangleAttributes]):
    """The lower or upper triangle of the last two dims, zeros elsewhere."""

    attributes = TriangleAttributes
    order = "row-major"

    def deduce(self, x: Meta, attrs: TriangleAttributes) -> Meta | None:
        return x if x.ndim > 1 and x.dtype in COMMON and type(attrs.diagonal) is int else None

    def bind(self, local: Local, attrs: TriangleAttributes) -> Kernel:
        row, column = local.input_offset(0)[-2:]
        return local.bind(self.kernel, attrs.diagonal + row - column)

    def gradient(self, dy: Tensor, x: Meta, attrs: TriangleAttributes) -> Tensor:
        return (tril if self.name == "tril" else triu)(dy, attrs.diagonal)


_tril = unary(Triangle("tril", torch.tril))
_triu = unary(Triangle("triu", torch.triu))


@register_function
def tril(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The last two dims up to and including a diagonal (> 0: above the main one), zeros above."""
    if out is not None:
        return give_to(out, tril(input, diagonal))
    return _tril(input, diagonal)


@register_function
def triu(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The last two dims from a diagonal on (> 0: above the main one), zeros below."""
    if out is not None:
        return give_to(out, triu(input, diagonal))
    return _triu(input, diagonal)


@register_function
def tril_indices(row: int, col: int, offset: int = 0, **layout: Unpack[TypedLayout]) -> Tensor:
    """[2, n]: the rows and columns of the lower triangle of a matrix."""
    return tensor(torch.tril_indices(index(row), index(col), index(offset)), **layout)


@register_function
def triu_indices(row: int, col: int, offset: int = 0, **layout: Unpack[TypedLayout]) -> Tensor:
    """[2, n]: the rows and columns of the upper triangle of a matrix."""
    return tensor(torch.triu_indices(index(row), index(col), index(offset)), **layout)


# Windows.


class UnfoldAttributes(NamedTuple):
    """The dim, the size of a window (for the gradient: of the dim), and the windows' step."""

    dim: int
    size: int
    step: int


class Unfold(ViewOp[UnfoldAttributes]):
    """Windows of a dim as a new last dim."""

    name = "unfold"
    attributes = UnfoldAttributes
    kernel = staticmethod(torch.Tensor.unfold)

    def places(self, x: Meta, attrs: UnfoldAttributes) -> Places:
        return untouched(x.ndim, (attrs.dim,))

    def gradient(self, dy: Tensor, x: Meta, attrs: UnfoldAttributes) -> Tensor:
        if not x.ndim:  # one window of one element, or of none
            return sum(dy, 0)
        return _unfold_grad(dy, attrs.dim, x.shape[attrs.dim], attrs.step)

    def scatter_view(self, x: Tensor, value: Tensor, index: int, attrs: UnfoldAttributes) -> Tensor:
        dim, size, step = attrs
        if size > step:
            raise overlapping(self.name)
        last = (value.shape[dim] - 1) * step
        for place in range(size):
            column = slice_by(value, one_dim(value.ndim, value.ndim - 1, place))
            x = set_slice(x, column, one_dim(x.ndim, dim, (place, place + last + 1, step)))
        return x


class UnfoldGrad(Mover[UnfoldAttributes]):
    """The sum of overlapping windows: the gradient of Unfold."""

    name = "unfold_grad"
    attributes = UnfoldAttributes
    flops_per_element = 1.0
    kernel = staticmethod(kernels.unfold_grad)

    def infer(self, dy: Meta, attrs: UnfoldAttributes) -> Meta:
        dim = attrs.dim
        return dy.like((*dy.shape[:dim], attrs.size, *dy.shape[dim + 1 : -1]))

    def rule(self, axis: Axis, dy: Meta, attrs: UnfoldAttributes) -> Rule:
        return [*follows(untouched(dy.ndim - 1, (attrs.dim,))), *passes([dy])[:1]]

    def gradient(self, dy: Tensor, x: Meta, attrs: UnfoldAttributes) -> Tensor:
        return _unfold(dy, attrs.dim, x.shape[-1], attrs.step)


_unfold = view_op(Unfold())
_unfold_grad = unary(UnfoldGrad())


@register_function
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of `size` elements along a dim, every `step` elements, as a new last dim."""
    return _unfold(self, wrap(dimension, self.ndim), size, step)
