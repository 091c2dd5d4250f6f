"""Transpose, permute, expand, squeeze, unsqueeze, diagonal and related ops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

import torch

from ...errors import OnefoldRuntimeError
from ...kernels import pad_repeat_ref as kernels
from ...kernels.common_shapes import broadcast_shapes
from ..argument_errors import checks_own_arguments
from ..argument_types import Dims
from ..dispatcher import unary, view_op
from ..meta import Meta, Shape
from ..names import register_function
from ..op import Kernel, Local
from ..out_tensors import give_to
from ..sbp import broadcast, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor, tensor_ops
from ..views import unlink
from .data_movement import (
    Mover,
    OneDim,
    PerDim,
    Places,
    Rearrangement,
    SomeDims,
    ViewOp,
    follows,
    overlapping,
    passes,
    unpack,
    wrap,
    wrap_all,
)
from .like import full_like
from .result_shapes import is_dim
from .view import reshape, view


class TwoDims(NamedTuple):
    """The dims."""

    dim0: int
    dim1: int


class Transpose(Rearrangement[TwoDims]):
    """Two dims exchanged."""

    name = "transpose"
    attributes = TwoDims
    kernel = staticmethod(torch.transpose)

    def bind(self, local: Local, attrs: TwoDims) -> Kernel:
        # mT has no numbers to read, which are a tenth of the time of a small transpose.
        ndim = len(local.input_shape(0))
        matrix = ndim > 1 and {*wrap_all(attrs, ndim)} == {ndim - 2, ndim - 1}
        return attrgetter("mT") if matrix else super().bind(local, attrs)

    def deduce(self, x: Meta, attrs: TwoDims) -> Meta | None:
        if not x.ndim or not all(is_dim(dim, x.ndim) for dim in attrs):
            return None
        shape = list(x.shape)
        i, j = attrs
        shape[i], shape[j] = shape[j], shape[i]
        return x.like(shape)

    def places(self, x: Meta, attrs: TwoDims) -> Places:
        order = list(range(x.ndim))
        if order:
            i, j = wrap_all(attrs, x.ndim)
            order[i], order[j] = j, i
        return [(i, j) for j, i in enumerate(order)]

    def gradient(self, dy: Tensor, x: Meta, attrs: TwoDims) -> Tensor:
        return _transpose(dy, *attrs)


class Permute(Rearrangement[SomeDims]):
    """Dims in another order; attribute: the old dim at each new position."""

    name = "permute"
    attributes = SomeDims
    kernel = staticmethod(torch.permute)

    def deduce(self, x: Meta, attrs: SomeDims) -> Meta | None:
        ndim = x.ndim
        if not all(is_dim(dim, ndim) for dim in attrs.dims):
            return None
        if sorted([dim % ndim for dim in attrs.dims]) != [*range(ndim)]:
            return None
        return x.like([x.shape[dim] for dim in attrs.dims])

    def places(self, x: Meta, attrs: SomeDims) -> Places:
        return [(wrap(i, x.ndim), j) for j, i in enumerate(attrs.dims)]

    def gradient(self, dy: Tensor, x: Meta, attrs: SomeDims) -> Tensor:
        old = [0] * len(attrs.dims)
        for place, dim in enumerate(attrs.dims):
            old[dim] = place
        return _permute(dy, tuple(old))


_transpose = view_op(Transpose())
_permute = view_op(Permute())


@register_function
@checks_own_arguments
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Dims `dim0` and `dim1` exchanged; a split moves with its dim."""
    return _transpose(input, dim0, dim1)


@register_function
def permute(input: Tensor, *axes: Dims, dims: Dims | None = None) -> Tensor:
    """The dims in the given order; a split moves with its dim.

    Example:
        >>> onefold.ones(2, 3, 4).permute(2, 0, -2).shape
        torch.Size([4, 2, 3])
    """
    return _permute(input, unpack(axes if dims is None else (*axes, dims)))


@register_function
def movedim(input: Tensor, source: Dims, destination: Dims) -> Tensor:
    """Dims `source` moved to the positions `destination`; the others keep their order."""
    ndim = input.ndim
    old, new = wrap_all(source, ndim), wrap_all(destination, ndim)
    if len(old) != len(new) or len(set(old)) < len(old) or len(set(new)) < len(new):
        raise OnefoldRuntimeError(
            "movedim: source and destination must name equally many distinct dims, but got "
            f"source={source}, destination={destination}"
        )
    rest = iter(dim for dim in range(ndim) if dim not in old)
    place = dict(zip(new, old, strict=True))
    return _permute(input, tuple(place[j] if j in place else next(rest) for j in range(ndim)))


@register_function
def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; vectors and 0-d tensors stay as they are."""
    if input.ndim > 2:
        raise OnefoldRuntimeError(
            f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D"
        )
    return input if input.ndim < 2 else _transpose(input, 0, 1)


@register_function
def reversed_dims(input: Tensor) -> Tensor:
    """The dims in reverse order: `x.T`."""
    return input if input.ndim < 2 else _permute(input, tuple(reversed(range(input.ndim))))


@register_function
def matrix_transpose(input: Tensor) -> Tensor:
    """The last two dims exchanged: `x.mT`; a 0-d tensor stays as it is."""
    return _last_two(input, "mT")


@register_function
def adjoint(input: Tensor) -> Tensor:
    """The last two dims exchanged, complex values conjugated."""
    return tensor_ops.conj(_last_two(input, "adjoint()"))


@register_function
def batch_hermitian(input: Tensor) -> Tensor:
    """The same as `adjoint`, as `x.mH`."""
    return tensor_ops.conj(_last_two(input, "mH"))


@register_function
def hermitian(input: Tensor) -> Tensor:
    """The conjugate transpose of a matrix: `x.H`."""
    if input.ndim not in (0, 2):
        instead = " For batches of matrices, consider using tensor.mH" if input.ndim > 2 else ""
        raise OnefoldRuntimeError(
            f"tensor.H is only supported on matrices (2-D tensors). Got {input.ndim}-D tensor."
            f"{instead}"
        )
    return tensor_ops.conj(_last_two(input, "H"))


def _last_two(input: Tensor, asked: str) -> Tensor:
    if input.ndim == 1:
        raise OnefoldRuntimeError(
            f"tensor.{asked} is only supported on matrices or batches of matrices. Got 1-D tensor."
        )
    return _transpose(input, -2, -1) if input.ndim else input


# Dims of size 1.


class Expand(ViewOp[PerDim]):
    """Dims of size 1, and new ones in front, repeated without copying; -1 keeps a size."""

    name = "expand"
    attributes = PerDim
    kernel = staticmethod(torch.Tensor.expand)

    def deduce(self, x: Meta, attrs: PerDim) -> Meta | None:
        new = len(attrs.sizes) - x.ndim
        if new < 0 or any(type(size) is not int for size in attrs.sizes):
            return None
        if min(attrs.sizes[:new], default=0) < 0:
            return None
        shape = list(attrs.sizes)
        for dim, size in enumerate(x.shape, new):
            if shape[dim] in (-1, size):
                shape[dim] = size
            elif size != 1 or shape[dim] < 0:
                return None
        return x.like(shape)

    def rule(self, axis: Axis, x: Meta, attrs: PerDim) -> Rule:
        new = len(attrs.sizes) - x.ndim
        found = follows((j - new, j) for j, size in enumerate(attrs.sizes) if size == -1)
        new_splits = [Signature((broadcast,), (split(j),)) for j in _repeated(attrs.sizes)]
        return [*found, *passes([x]), *new_splits]

    def bind(self, local: Local, attrs: PerDim) -> Kernel:
        return local.bind(torch.Tensor.expand, local.output_shape())

    def gradient(self, dy: Tensor, x: Meta, attrs: PerDim) -> Tensor:
        repeated = _repeated(attrs.sizes)
        return reshape(tensor_ops.sum(dy, repeated, True), x.shape) if repeated else dy

    def scatter_view(self, x: Tensor, value: Tensor, index: int, attrs: PerDim) -> Tensor:
        if not value.meta.numel:
            return x
        if value.meta.numel != x.meta.numel:
            raise overlapping(self.name)
        return view(value, x.shape)


def _repeated(sizes: Shape) -> Shape:
    """The dims of an expanded tensor in which it was repeated."""
    return tuple(dim for dim, size in enumerate(sizes) if size != -1)


class Squeeze(Rearrangement[SomeDims]):
    """Without the given dims, which have size 1."""

    name = "squeeze"
    attributes = SomeDims
    kernel = staticmethod(torch.squeeze)

    def infer(self, x: Meta, attrs: SomeDims) -> Meta:
        return x.like([size for dim, size in enumerate(x.shape) if dim not in attrs.dims])

    def places(self, x: Meta, attrs: SomeDims) -> Places:
        kept = [dim for dim in range(x.ndim) if dim not in attrs.dims]
        return [(i, j) for j, i in enumerate(kept)]

    def gradient(self, dy: Tensor, x: Meta, attrs: SomeDims) -> Tensor:
        return _unsqueeze(dy, *attrs.dims) if len(attrs.dims) == 1 else view(dy, x.shape)


class Unsqueeze(Rearrangement[OneDim]):
    """One more dim of size 1."""

    name = "unsqueeze"
    attributes = OneDim
    kernel = staticmethod(torch.unsqueeze)

    def deduce(self, x: Meta, attrs: OneDim) -> Meta | None:
        if not is_dim(attrs.dim, x.ndim + 1):
            return None
        dim = attrs.dim % (x.ndim + 1)
        return x.like((*x.shape[:dim], 1, *x.shape[dim:]))

    def places(self, x: Meta, attrs: OneDim) -> Places:
        dim = wrap(attrs.dim, x.ndim + 1)
        return [(i, i + (i >= dim)) for i in range(x.ndim)]

    def gradient(self, dy: Tensor, x: Meta, attrs: OneDim) -> Tensor:
        return _squeeze(dy, (wrap(attrs.dim, x.ndim + 1),))


_expand = view_op(Expand())
_squeeze = view_op(Squeeze())
_unsqueeze = view_op(Unsqueeze())


@register_function
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """The tensor with a new dim of size 1 at position `dim`."""
    return _unsqueeze(input, dim)


@register_function
def squeeze(input: Tensor, dim: Dims | None = None) -> Tensor:
    """The tensor without its dims of size 1: all of them, or those named in `dim`."""
    shape = input.meta.shape
    dims = range(len(shape)) if dim is None else wrap_all(dim, len(shape))
    ones = tuple(d for d in dims if d < len(shape) and shape[d] == 1)
    return _squeeze(input, ones)


@register_function
def expand(input: Tensor, *sizes: Dims, size: Dims | None = None) -> Tensor:
    """Dims of size 1, and new ones in front, repeated to these sizes; -1 keeps a dim's size.

    Raises OnefoldRuntimeError when a dim of another size would change.
    """
    wanted = unpack(sizes if size is None else (*sizes, size))
    return _expand(input, _changed_sizes(input.meta.shape, wanted))


@lru_cache(maxsize=4096)
def _changed_sizes(shape: Shape, wanted: Shape) -> Shape:
    """The sizes to which a shape is expanded, -1 for those that it has."""
    new = len(wanted) - len(shape)
    if new < 0:  # the op says what is wrong
        return wanted
    return tuple(
        [-1 if j >= new and size == shape[j - new] else size for j, size in enumerate(wanted)]
    )


@register_function
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """`transpose`, under numpy's name."""
    return _transpose(input, axis0, axis1)


@register_function
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor expanded to the shape of another tensor."""
    return expand(self, other.shape)


@register_function
def broadcast_like(
    x: Tensor, like_tensor: Tensor, broadcast_axes: Sequence[int] | None = None
) -> Tensor:
    """Expanded to the shape of another tensor; its dims in `broadcast_axes` may be missing in x."""
    if broadcast_axes is not None and x.ndim < like_tensor.ndim:
        for dim in sorted(wrap_all(tuple(broadcast_axes), like_tensor.ndim)):
            if x.ndim < like_tensor.ndim:
                x = unsqueeze(x, dim)
    return expand(x, like_tensor.shape)


@register_function
def broadcast_tensors(*tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape."""
    given: tuple[Tensor, ...] = unpack(tensors)
    shape = broadcast_shapes(*[x.shape for x in given])
    return tuple(x if x.shape == shape else expand(x, shape) for x in given)


# Diagonals.


class DiagonalAttributes(NamedTuple):
    """The offset from the main diagonal, and the two dims."""

    offset: int
    dim1: int
    dim2: int


class Diagonal(ViewOp[DiagonalAttributes]):
    """The diagonal of two dims, as the last dim."""

    name = "diagonal"
    attributes = DiagonalAttributes
    kernel = staticmethod(torch.diagonal)

    def places(self, x: Meta, attrs: DiagonalAttributes) -> Places:
        return _other_dims(x.ndim, attrs.dim1, attrs.dim2)

    def gradient(self, dy: Tensor, x: Meta, attrs: DiagonalAttributes) -> Tensor:
        return _diag_embed(dy, tuple(x.shape), *attrs)

    def scatter_view(
        self, x: Tensor, value: Tensor, index: int, attrs: DiagonalAttributes
    ) -> Tensor:
        shape = tuple(x.shape)
        there = _diag_embed(full_like(value, True, dtype=torch.bool), shape, *attrs)
        return tensor_ops.where(there, _diag_embed(value, shape, *attrs), x)


class DiagEmbedAttributes(NamedTuple):
    """The target shape, and the fields of `DiagonalAttributes`."""

    shape: Shape
    offset: int
    dim1: int
    dim2: int


class DiagEmbed(Mover[DiagEmbedAttributes]):
    """Zeros of a shape, with the last dim of the input on the diagonal of two dims."""

    name = "diag_embed"
    attributes = DiagEmbedAttributes
    flops_per_element = 1.0
    kernel = staticmethod(kernels.diag_embed)

    def places(self, x: Meta, attrs: DiagEmbedAttributes) -> Places:
        return [(j, i) for i, j in _other_dims(len(attrs.shape), attrs.dim1, attrs.dim2)]

    def bind(self, local: Local, attrs: DiagEmbedAttributes) -> Kernel:
        return local.bind(self.kernel, local.output_shape(), *attrs[1:])

    def gradient(self, dy: Tensor, x: Meta, attrs: DiagEmbedAttributes) -> Tensor:
        return _diagonal(dy, attrs.offset, attrs.dim1, attrs.dim2)


def _other_dims(ndim: int, dim1: int, dim2: int) -> list[tuple[int, int]]:
    """For each dim but these two, its place in `diagonal`'s output."""
    gone = (wrap(dim1, ndim), wrap(dim2, ndim))
    kept = [dim for dim in range(ndim) if dim not in gone]
    return [(i, j) for j, i in enumerate(kept)]


_diagonal = view_op(Diagonal())
_diag_embed = unary(DiagEmbed())


@register_function
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of dims `dim1` and `dim2`, as the last dim; `offset` > 0 lies above."""
    return _diagonal(input, offset, dim1, dim2)


@register_function
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Zeros with the last dim on the diagonal of two new dims `dim1` and `dim2`."""
    if not input.ndim:
        raise OnefoldRuntimeError("diag_embed needs a tensor of at least 1 dim, but got a 0-d one")
    i, j = wrap(dim1, input.ndim + 1), wrap(dim2, input.ndim + 1)
    if i == j:
        raise OnefoldRuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    batch = iter(input.shape[:-1])
    side = input.shape[-1] + abs(offset)
    shape = tuple(side if dim in (i, j) else next(batch) for dim in range(input.ndim + 1))
    return _diag_embed(input, shape, offset, i, j)


@register_function
def diag(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """A vector as the diagonal of a matrix, or the diagonal of a matrix as a vector."""
    if out is not None:
        return give_to(out, diag(input, diagonal))
    if input.ndim not in (1, 2):
        raise OnefoldRuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    return unlink(_diagonal(input, diagonal, 0, 1))  # torch copies here
