"""flip, roll, rot90, repeat, repeat_interleave, tile, tril, triu and unfold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ...errors import OnefoldRuntimeError, ShapeError
from ...kernels import pad_repeat_ref as kernels
from ..dispatcher import unary, view_op
from ..meta import Meta
from ..names import register_function
from ..op import Kernel, Local, Op
from ..sbp import broadcast, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..values import whole
from ..views import unlink
from .creation import tensor
from .data_movement import Dims, follows, overlapping, passes, unpack, wrap, wrap_all
from .dims import transpose
from .index import take_rows
from .index_parsing import like_index
from .reduce import sum
from .slicing import one_dim, set_slice, slice_by
from .view import flatten, reshape

Shape = tuple[int, ...]


def others(ndim: int, dims: Sequence[int]) -> list[tuple[int, int]]:
    """The pairs (dim, dim) of the dims that an op leaves alone."""
    return [(d, d) for d in range(ndim) if d not in dims]


class FlipAttributes(NamedTuple):
    """The dims."""

    dims: Dims


class Flip(Op):
    """Dims read backwards."""

    name = "flip"
    attributes = FlipAttributes
    saves = ()
    flops_per_element = 0.0
    kernel = staticmethod(torch.flip)

    def rule(self, axis: Axis, x: Meta, attrs: FlipAttributes) -> Rule:
        return [*follows(others(x.ndim, *attrs)), *passes([x])]

    def vjp(
        self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, attrs: FlipAttributes
    ) -> Any:
        return (_flip(dy, *attrs),)


class RollAttributes(NamedTuple):
    """How far, along which dims."""

    shifts: Shape
    dims: Dims


class Roll(Op):
    """Dims shifted, what falls off at the end coming in at the start."""

    name = "roll"
    attributes = RollAttributes
    saves = ()
    flops_per_element = 0.0
    kernel = staticmethod(torch.roll)

    def rule(self, axis: Axis, x: Meta, attrs: RollAttributes) -> Rule:
        return [*follows(others(x.ndim, attrs.dims)), *passes([x])]

    def vjp(
        self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, attrs: RollAttributes
    ) -> Any:
        return (_roll(dy, tuple(-shift for shift in attrs.shifts), attrs.dims),)


_flip = unary(Flip())
_roll = unary(Roll())


@register_function
def flip(input: Tensor, *dims: Any) -> Tensor:
    """The dims given read backwards."""
    found = wrap_all(unpack(dims), input.ndim)
    if len(set(found)) < len(found):
        raise OnefoldRuntimeError(f"flip: a dim appears multiple times in the list of dims {dims}")
    return _flip(input, found)


@register_function
def fliplr(input: Tensor) -> Tensor:
    """Dim 1 read backwards."""
    if input.ndim < 2:
        raise OnefoldRuntimeError("Input must be >= 2-d.")
    return _flip(input, (1,))


@register_function
def flipud(input: Tensor) -> Tensor:
    """Dim 0 read backwards."""
    if not input.ndim:
        raise OnefoldRuntimeError("Input must be >= 1-d.")
    return _flip(input, (0,))


@register_function
def roll(
    input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> Tensor:
    """Elements shifted along `dims`, circularly; without `dims` of the tensor seen as one dim."""
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
    k %= 4
    if k == 1:
        return transpose(_flip(input, (second,)), first, second)
    if k == 2:
        return _flip(input, (first, second))
    if k == 3:
        return _flip(transpose(input, first, second), (second,))
    return unlink(reshape(input, input.shape))  # torch copies here


# Repeating.


class RepeatAttributes(NamedTuple):
    """How often, for each dim."""

    times: Shape


class Repeat(Op):
    """The tensor repeated as a whole along each dim; missing dims are in front."""

    name = "repeat"
    attributes = RepeatAttributes
    saves = ()
    flops_per_element = 0.0

    kernel = staticmethod(kernels.repeat)

    def rule(self, axis: Axis, x: Meta, attrs: RepeatAttributes) -> Rule:
        new = len(*attrs) - x.ndim
        found = follows((j - new, j) for j, count in enumerate(*attrs) if j >= new and count == 1)
        # In a dim that is new each rank makes its own share of the copies.
        found += [Signature((broadcast,), (split(j),)) for j in range(new)]
        return [*found, *passes([x])]

    def bind(self, local: Local, attrs: RepeatAttributes) -> Kernel:
        (times,) = attrs
        new = len(times) - len(local.input_shape(0))
        mine = (*local.output_shape()[:new], *times[new:])
        repeat = local.pick(kernels.repeat)
        return lambda x: repeat(x, mine)

    def vjp(
        self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, attrs: RepeatAttributes
    ) -> Any:
        times = attrs.times
        new = len(times) - x.ndim
        parts = [part for j, count in enumerate(times[new:]) for part in (count, x.shape[j])]
        apart = reshape(dy, *times[:new], *parts)
        copies = (*range(new), *range(new, new + 2 * x.ndim, 2))
        return (sum(apart, copies) if copies else dy,)


class RepeatInterleaveAttributes(NamedTuple):
    """How often each element, along which dim."""

    times: int
    dim: int


class RepeatInterleave(Op):
    """Each element of a dim repeated in its place."""

    name = "repeat_interleave"
    attributes = RepeatInterleaveAttributes
    saves = ()
    flops_per_element = 0.0

    kernel = staticmethod(kernels.repeat_interleave)

    def rule(self, axis: Axis, x: Meta, attrs: RepeatInterleaveAttributes) -> Rule:
        count, dim = attrs
        found = follows(others(x.ndim, (dim,)))
        uneven = bool(axis.ragged) and dim in axis.ragged[0]
        if count == 1 or (x.shape[dim] % axis.parts == 0 and not uneven):
            found += follows([(dim, dim)])
        return [*found, *passes([x])]

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        x: Meta,
        attrs: RepeatInterleaveAttributes,
    ) -> Any:
        count, dim = attrs
        apart = reshape(dy, *x.shape[: dim + 1], count, *x.shape[dim + 1 :])
        return (sum(apart, dim + 1),)


_repeat = unary(Repeat())
_repeat_interleave = unary(RepeatInterleave())


@register_function
def repeat(self: Tensor, *repeats: Any) -> Tensor:
    """The tensor repeated as a whole along each dim; more numbers than dims add dims in front."""
    times = unpack(repeats)
    if len(times) < self.ndim:
        raise OnefoldRuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            f"tensor: got {len(times)} for {self.ndim}"
        )
    return _repeat(self, times)


@register_function
def tile(input: Tensor, *dims: Any) -> Tensor:
    """`repeat` where fewer numbers than dims mean the last ones."""
    times = unpack(dims)
    return _repeat(input, (*[1] * (input.ndim - len(times)), *times))


@register_function
def repeat_interleave(
    input: Tensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element of `dim` repeated in its place: `repeats` times, or each its own number.

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
    counts = whole(repeats)
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


class Triangle(Op):
    """The lower or upper triangle of the last two dims, zeros elsewhere."""

    saves = ()
    flops_per_element = 0.0

    def __init__(self, name: str, kernel: Callable[..., torch.Tensor]) -> None:
        self.name = name
        self.kernel = kernel  # type: ignore[method-assign]

    def rule(self, axis: Axis, x: Meta, diagonal: int) -> Rule:
        return [*follows((d, d) for d in range(x.ndim)), *passes([x])]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        row, column = local.input_offset(0)[-2:]
        mine = attrs[0] + row - column
        kernel = local.pick(self.kernel)
        return lambda x: kernel(x, mine)

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, diagonal: int) -> Any:
        return ((tril if self.name == "tril" else triu)(dy, diagonal),)


_tril = unary(Triangle("tril", torch.tril))
_triu = unary(Triangle("triu", torch.triu))


@register_function
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The last two dims up to and including a diagonal (> 0: above the main one), zeros above."""
    return _tril(input, diagonal)


@register_function
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The last two dims from a diagonal on (> 0: above the main one), zeros below."""
    return _triu(input, diagonal)


def _triangle_indices(
    find: Callable[..., torch.Tensor], row: int, col: int, offset: int, layout: dict[str, Any]
) -> Tensor:
    dtype = layout.pop("dtype", None) or torch.int64
    return tensor(find(row, col, offset, dtype=dtype), **layout)


@register_function
def tril_indices(row: int, col: int, offset: int = 0, **layout: Any) -> Tensor:
    """[2, n]: the rows and columns of the lower triangle of a matrix."""
    return _triangle_indices(torch.tril_indices, row, col, offset, layout)


@register_function
def triu_indices(row: int, col: int, offset: int = 0, **layout: Any) -> Tensor:
    """[2, n]: the rows and columns of the upper triangle of a matrix."""
    return _triangle_indices(torch.triu_indices, row, col, offset, layout)


# Windows.


class Unfold(Op):
    """Windows of a dim as a new last dim."""

    name = "unfold"
    saves = ()
    aliases = makes_views = True
    flops_per_element = 0.0

    def kernel(self, x: torch.Tensor, dim: int, size: int, step: int) -> torch.Tensor:
        return x.unfold(dim, size, step)

    def rule(self, axis: Axis, x: Meta, dim: int, size: int, step: int) -> Rule:
        return [*follows(others(x.ndim, (dim,))), *passes([x])]

    def vjp(
        self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, dim: int, size: int, step: int
    ) -> Any:
        if not x.ndim:  # one window of one element, or of none
            return (sum(dy, 0),)
        return (_unfold_grad(dy, dim, x.shape[dim], step),)

    def scatter_view(self, x: Tensor, value: Tensor, index: int, *attrs: int) -> Tensor:
        dim, size, step = attrs
        if size > step:
            raise overlapping(self.name)
        last = (value.shape[dim] - 1) * step
        for place in range(size):
            column = slice_by(value, one_dim(value.ndim, value.ndim - 1, place))
            x = set_slice(x, column, one_dim(x.ndim, dim, (place, place + last + 1, step)))
        return x


class UnfoldGrad(Op):
    """Windows added where they overlap: the gradient of Unfold."""

    name = "unfold_grad"
    saves = ()

    kernel = staticmethod(kernels.unfold_grad)

    def infer(self, dy: Meta, dim: int, length: int, step: int) -> Meta:
        return dy.like((*dy.shape[:dim], length, *dy.shape[dim + 1 : -1]))

    def rule(self, axis: Axis, dy: Meta, dim: int, length: int, step: int) -> Rule:
        found = follows(others(dy.ndim - 1, (dim,)))
        return [*found, *passes([dy])[:1]]

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        x: Meta,
        dim: int,
        length: int,
        step: int,
    ) -> Any:
        return (_unfold(dy, dim, x.shape[-1], step),)


_unfold = view_op(Unfold())
_unfold_grad = unary(UnfoldGrad())


@register_function
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of `size` elements along a dim, every `step` elements, as a new last dim."""
    return _unfold(self, wrap(dimension, self.ndim), size, step)
