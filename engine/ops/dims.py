"""Transpose, permute, expand, squeeze, unsqueeze, diagonal and related ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...errors import OnefoldRuntimeError
from ...kernels import pad_repeat_ref as kernels
from ..dispatcher import unary, view_op
from ..meta import Meta
from ..names import names, register_function, register_name
from ..op import Kernel, Local, Op
from ..sbp import broadcast, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..views import unlink
from .data_movement import Dims, follows, overlapping, passes, unpack, wrap, wrap_all
from .like import full_like
from .view import reshape, view

Shape = tuple[int, ...]


class Transpose(Op):
    """Two dims exchanged."""

    name = "transpose"
    saves = ()
    aliases = makes_views = True
    flops_per_element = 0.0
    kernel = staticmethod(torch.transpose)

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        x = local.inputs[0]
        assert x is not None
        # torch.t has no numbers to read, which are a tenth of the time of a small transpose.
        matrix = x.ndim == 2 and (attrs[0] - attrs[1]) % 2
        return torch.t if matrix else super().bind(local, attrs)

    def rule(self, axis: Axis, x: Meta, dim0: int, dim1: int) -> Rule:
        order = list(range(x.ndim))
        if order:
            i, j = wrap(dim0, x.ndim), wrap(dim1, x.ndim)
            order[i], order[j] = j, i
        return [*follows((i, j) for j, i in enumerate(order)), *passes([x])]

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, *dims: int) -> Any:
        return (_transpose(dy, *dims),)

    def scatter_view(self, x: Tensor, value: Tensor, index: int, *dims: int) -> Tensor:
        return _transpose(value, *dims)


class Permute(Op):
    """Dims in another order; attribute: the old dim that stands at each new place."""

    name = "permute"
    saves = ()
    aliases = makes_views = True
    flops_per_element = 0.0
    kernel = staticmethod(torch.permute)

    def rule(self, axis: Axis, x: Meta, order: Dims) -> Rule:
        places = ((wrap(i, x.ndim), j) for j, i in enumerate(order))
        return [*follows(places), *passes([x])]

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, order: Dims) -> Any:
        return (_permute(dy, _inverse(order)),)

    def scatter_view(self, x: Tensor, value: Tensor, index: int, *attrs: Any) -> Tensor:
        (order,) = attrs
        return _permute(value, _inverse(order))


def _inverse(order: Dims) -> Dims:
    back = [0] * len(order)
    for new, old in enumerate(order):
        back[old] = new
    return tuple(back)


_transpose = view_op(Transpose())
_permute = view_op(Permute())


@register_function
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Dims `dim0` and `dim1` exchanged; a split goes with its dim."""
    return _transpose(input, dim0, dim1)


register_name("swapaxes", transpose)
register_name("swapdims", transpose)


@register_function
def permute(input: Tensor, *dims: Any) -> Tensor:
    """The dims in the order given; a split goes with its dim.

    Example:
        >>> onefold.ones(2, 3, 4).permute(2, 0, -2).shape
        torch.Size([4, 2, 3])
    """
    return _permute(input, unpack(dims))


@register_function
def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Dims `source` at the places `destination`; the others keep their order."""
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


register_name("moveaxis", movedim)


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
    return names.conj(_last_two(input, "adjoint()"))  # type: ignore[no-any-return]


@register_function
def batch_hermitian(input: Tensor) -> Tensor:
    """The same as `adjoint`, as `x.mH`."""
    return names.conj(_last_two(input, "mH"))  # type: ignore[no-any-return]


@register_function
def hermitian(input: Tensor) -> Tensor:
    """The conjugate transpose of a matrix: `x.H`."""
    if input.ndim not in (0, 2):
        instead = " For batches of matrices, consider using tensor.mH" if input.ndim > 2 else ""
        raise OnefoldRuntimeError(
            f"tensor.H is only supported on matrices (2-D tensors). Got {input.ndim}-D tensor."
            f"{instead}"
        )
    return names.conj(_last_two(input, "H"))  # type: ignore[no-any-return]


def _last_two(input: Tensor, asked: str) -> Tensor:
    if input.ndim == 1:
        raise OnefoldRuntimeError(
            f"tensor.{asked} is only supported on matrices or batches of matrices. Got 1-D tensor."
        )
    return _transpose(input, -2, -1) if input.ndim else input


# Dims of size 1.


class Expand(Op):
    """Dims of size 1, and new ones in front, repeated without copying; -1 keeps a size."""

    name = "expand"
    saves = ()
    aliases = makes_views = True
    flops_per_element = 0.0

    def kernel(self, x: torch.Tensor, sizes: Shape) -> torch.Tensor:
        return x.expand(sizes)

    def rule(self, axis: Axis, x: Meta, sizes: Shape) -> Rule:
        new = len(sizes) - x.ndim
        found = follows((j - new, j) for j, size in enumerate(sizes) if size == -1)
        found += passes([x])
        repeated = [j for j, size in enumerate(sizes) if size != -1]
        return [*found, *[Signature((broadcast,), (split(j),)) for j in repeated]]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        shape = local.output_shape()
        return lambda x: x.expand(shape)

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, sizes: Shape) -> Any:
        repeated = tuple(j for j, size in enumerate(sizes) if size != -1)
        return (reshape(names.sum(dy, repeated, True), x.shape) if repeated else dy,)

    def scatter_view(self, x: Tensor, value: Tensor, index: int, *attrs: Any) -> Tensor:
        if not value.meta.numel:
            return x
        if value.meta.numel != x.meta.numel:
            raise overlapping(self.name)
        return view(value, x.shape)


class Squeeze(Op):
    """Without the given dims, which have size 1."""

    name = "squeeze"
    saves = ()
    aliases = makes_views = True
    flops_per_element = 0.0
    kernel = staticmethod(torch.squeeze)

    def infer(self, x: Meta, dims: Dims) -> Meta:
        return x.like([size for dim, size in enumerate(x.shape) if dim not in dims])

    def rule(self, axis: Axis, x: Meta, dims: Dims) -> Rule:
        kept = [dim for dim in range(x.ndim) if dim not in dims]
        return [*follows((i, j) for j, i in enumerate(kept)), *passes([x])]

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, dims: Dims) -> Any:
        return (reshape(dy, x.shape) if len(dims) > 1 else _unsqueeze(dy, dims[0]),)

    def scatter_view(self, x: Tensor, value: Tensor, index: int, *attrs: Any) -> Tensor:
        return view(value, x.shape)


class Unsqueeze(Op):
    """With one dim of size 1 more."""

    name = "unsqueeze"
    saves = ()
    aliases = makes_views = True
    flops_per_element = 0.0
    kernel = staticmethod(torch.unsqueeze)

    def rule(self, axis: Axis, x: Meta, dim: int) -> Rule:
        dim = wrap(dim, x.ndim + 1)
        return [*follows((i, i + (i >= dim)) for i in range(x.ndim)), *passes([x])]

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, dim: int) -> Any:
        return (_squeeze(dy, (wrap(dim, x.ndim + 1),)),)

    def scatter_view(self, x: Tensor, value: Tensor, index: int, *attrs: Any) -> Tensor:
        return view(value, x.shape)


_expand = view_op(Expand())
_squeeze = view_op(Squeeze())
_unsqueeze = view_op(Unsqueeze())


@register_function
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """With a dim of size 1 at place `dim`."""
    return _unsqueeze(input, dim)


@register_function
def squeeze(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Without the dims of size 1: all of them, or those named in `dim`."""
    shape = input.meta.shape
    dims = range(len(shape)) if dim is None else wrap_all(dim, len(shape))
    ones = tuple(d for d in dims if d < len(shape) and shape[d] == 1)
    return _squeeze(input, ones) if ones else input


@register_function
def expand(self: Tensor, *sizes: Any) -> Tensor:
    """Dims of size 1, and new ones in front, repeated to these sizes; -1 keeps a dim's size.

    Raises OnefoldRuntimeError when a dim of another size would change.
    """
    sizes = unpack(sizes)
    shape = self.meta.shape
    new = len(sizes) - len(shape)
    if new >= 0:  # else the op says what is wrong
        sizes = tuple(
            -1 if j >= new and size == shape[j - new] else size for j, size in enumerate(sizes)
        )
    return _expand(self, sizes)


@register_function
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """Expanded to the shape of another tensor."""
    return expand(self, *other.shape)


@register_function
def broadcast_to(input: Tensor, *size: Any) -> Tensor:
    """`expand` under numpy's name."""
    return expand(input, *size)


@register_function
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape."""
    tensors = unpack(tensors)
    shape = torch.broadcast_shapes(*[x.shape for x in tensors])
    return tuple(expand(x, *shape) for x in tensors)


# Diagonals.


class Diagonal(Op):
    """The diagonal of two dims, as the last dim."""

    name = "diagonal"
    saves = ()
    aliases = makes_views = True
    flops_per_element = 0.0

    kernel = staticmethod(torch.diagonal)

    def rule(self, axis: Axis, x: Meta, offset: int, dim1: int, dim2: int) -> Rule:
        return [*follows(_beside(x.ndim, dim1, dim2)), *passes([x])]

    def vjp(
        self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta, offset: int, *dims: int
    ) -> Any:
        return (_diag_embed(dy, tuple(x.shape), offset, *dims),)

    def scatter_view(self, x: Tensor, value: Tensor, index: int, *attrs: int) -> Tensor:
        shape = tuple(x.shape)
        there = _diag_embed(full_like(value, True, dtype=torch.bool), shape, *attrs)
        return names.where(there, _diag_embed(value, shape, *attrs), x)  # type: ignore[no-any-return]


class DiagEmbed(Op):
    """Zeros of a shape, with the last dim of the input on the diagonal of two dims."""

    name = "diag_embed"
    saves = ()

    kernel = staticmethod(kernels.diag_embed)

    def rule(self, axis: Axis, x: Meta, shape: Shape, offset: int, dim1: int, dim2: int) -> Rule:
        pairs = _beside(len(shape), dim1, dim2)
        return [*follows((j, i) for i, j in pairs), *passes([x])]

    def bind(self, local: Local, attrs: tuple[Any, ...]) -> Kernel:
        kernel, shape, rest = local.pick(self.kernel), local.output_shape(), attrs[1:]
        return lambda x: kernel(x, shape, *rest)

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        x: Meta,
        shape: Shape,
        offset: int,
        *dims: int,
    ) -> Any:
        return (_diagonal(dy, offset, *dims),)


def _beside(ndim: int, dim1: int, dim2: int) -> list[tuple[int, int]]:
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
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A vector as the diagonal of a matrix, or the diagonal of a matrix as a vector."""
    if input.ndim not in (1, 2):
        raise OnefoldRuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    return unlink(_diagonal(input, diagonal, 0, 1))  # torch copies here
