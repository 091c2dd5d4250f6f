"""gather and scatter along one dim."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch

from ...errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from ...kernels import gather_scatter_ref as kernels
from ...kernels.common_shapes import broadcast_shapes
from ..argument_types import Number
from ..dispatch_plan import check_tensors
from ..dispatcher import binary, general_of
from ..meta import Meta, Shape
from ..names import register_function
from ..op import Gradients, Kernel, Local, Needs
from ..out_tensors import give_to
from ..sbp import Sbp, broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .arithmetic import add
from .data_movement import (
    DataMovement,
    IndexedOp,
    OneDim,
    contribution,
    passes_first,
    reductions,
    together,
    wrap,
)
from .dims import expand
from .result_shapes import COMMON, alike, fits_index
from .slicing import Entries, slice_by
from .view import reshape
from .where import where


class Gather(IndexedOp[OneDim]):
    """y[..., i, ...] = x[..., index[..., i, ...], ...] along a dim."""

    name = "gather"
    attributes = OneDim
    order = "row-major"
    flops_per_element = 0.0

    def kernel(self, x: torch.Tensor, index: torch.Tensor, dim: int) -> torch.Tensor:
        return torch.gather(x, dim, index)

    def deduce(self, x: Meta, index: Meta, attrs: OneDim) -> Meta | None:
        ordinary = x.dtype in COMMON and index.dtype is torch.int64
        fits = ordinary and fits_index(index.shape, x.shape, attrs.dim)
        return x.like(index.shape) if fits else None

    def rule(self, axis: Axis, x: Meta, index: Meta, attrs: OneDim) -> Rule:
        dim = wrap(attrs.dim, x.ndim)
        found = together(split_alike(axis, x, index, dim), 2)
        found += [Signature((broadcast, split(d)), (split(d),)) for d in range(index.ndim)]
        if x.ndim:
            found.append(Signature((split(dim), broadcast), (contribution(x),)))
        return [*found, *passes_first(x, 1)]

    def bind(self, local: Local, attrs: OneDim) -> Kernel:
        x = local.input(0)
        gather, fit = local.pick(kernels.gather), kernels.fit
        if not x.ndim:
            return lambda x, index: gather(x, 0, index)
        dim = wrap(attrs.dim, x.ndim)
        offset, mine = local.input_offset(0), local.input_shape(0)
        shape, whole = local.input_shape(1), x.shape[dim]
        start = _distance(local.input_offset(1), offset)
        if mine[dim] != whole:
            held, first = local.pick(kernels.gather_held), offset[dim]
            return lambda x, index: held(fit(x, start, shape, dim), dim, index, first, whole)
        if all(a == b for d, (a, b) in enumerate(zip(mine, shape, strict=True)) if d != dim):
            return lambda x, index: gather(x, dim, index)
        return lambda x, index: gather(fit(x, start, shape, dim), dim, index)

    def gradient(self, dy: Tensor, x: Meta, index: Tensor, attrs: OneDim) -> Tensor:
        return add_at(dy, index, tuple(x.shape), attrs.dim)


def _distance(inner: Shape, outer: Shape) -> Shape:
    """The offset of a box that starts at `inner` within one that starts at `outer`."""
    return tuple(a - b for a, b in zip(inner, outer, strict=True))


def split_alike(axis: Axis, x: Meta, index: Meta, dim: int) -> list[int]:
    """The dims except `dim` in which x and index have the same size and the same split."""
    return [
        d
        for d in range(index.ndim)
        if d != dim
        and x.shape[d] == index.shape[d]
        and (not axis.ragged or (d in axis.ragged[0]) == (d in axis.ragged[1]))
    ]


class AddAtAttributes(NamedTuple):
    """The dim, the shape, and the other dims in which dy is as large as the shape."""

    dim: int
    shape: Shape
    full: Shape


class AddAt(IndexedOp[AddAtAttributes]):
    """Zeros of a shape with dy added at the positions of the index: the gradient of gather."""

    name = "add_at"
    attributes = AddAtAttributes
    order = "row-major"

    def infer(self, dy: Meta, index: Meta, attrs: AddAtAttributes) -> Meta:
        return dy.like(attrs.shape)

    def rule(self, axis: Axis, dy: Meta, index: Meta, attrs: AddAtAttributes) -> Rule:
        adds = contribution(dy)
        found = [
            Signature((split(d), split(d)), (split(d) if d in attrs.full else adds,))
            for d in range(dy.ndim)
        ]
        found.append(Signature((adds, broadcast), (adds,)))
        if attrs.shape:
            found.append(Signature((broadcast, broadcast), (split(attrs.dim),)))
        return found

    def bind(self, local: Local, attrs: AddAtAttributes) -> Kernel:
        dim, shape, _ = attrs
        add_at = local.pick(kernels.add_at)
        if not shape:
            return lambda dy, index: add_at(
                dy.reshape(-1), 0, index.reshape(-1), (1,), (0,), 0, 1
            ).view(())
        mine, offset = local.output_shape(), local.output_offset()
        start = _distance(local.input_offset(1), offset)
        given = local.input_shape(0)
        others = [d for d in range(len(shape)) if d != dim]
        alike = mine[dim] == shape[dim] and all(mine[d] == given[d] for d in others)
        if add_at is kernels.add_at and local.device_type == "cpu" and alike and 0 not in mine:
            return local.bind(kernels.add_at_whole, dim, tuple(mine))
        return lambda dy, index: add_at(dy, dim, index, mine, start, offset[dim], shape[dim])

    def gradient(self, dy: Tensor, x: Meta, index: Tensor, attrs: AddAtAttributes) -> Tensor:
        return _gather(dy, index, attrs.dim)


class ScatterAttributes(NamedTuple):
    """The dim, and the value if there is no source."""

    dim: int
    number: Number


class Scatter(DataMovement):
    """x with the values of a source (or one number) at the positions of the index along a dim."""

    name = "scatter"
    attributes = ScatterAttributes
    order = "row-major"
    saves = (1,)

    def kernel(
        self,
        x: torch.Tensor,
        index: torch.Tensor,
        source: torch.Tensor | None,
        dim: int,
        number: Number,
    ) -> torch.Tensor:
        return torch.scatter(x, dim, index, number if source is None else source)

    def deduce(
        self, x: Meta, index: Meta, source: Meta | None, attrs: ScatterAttributes
    ) -> Meta | None:
        ordinary = alike(x, source, dtypes=COMMON) and index.dtype is torch.int64
        read = index if source is None else source
        given = source is not None or type(attrs.number) in (bool, int, float)
        fits = ordinary and given and fits_index(index.shape, x.shape, attrs.dim)
        return x if fits and read.shape == index.shape else None

    def rule(
        self, axis: Axis, x: Meta, index: Meta, source: Meta | None, attrs: ScatterAttributes
    ) -> Rule:
        def of(mine: Sbp, theirs: Sbp, values: Sbp) -> Signature:
            return Signature((mine, theirs, *([] if source is None else [values])), (mine,))

        found = [of(split(d), split(d), split(d)) for d in split_alike(axis, x, index, attrs.dim)]
        if x.ndim:
            found.append(of(split(attrs.dim), broadcast, broadcast))
        passing = [s for s in reductions(x) if source or s is not partial_sum or not attrs.number]
        return [*found, *[of(sbp, broadcast, sbp) for sbp in passing]]

    def bind(self, local: Local, attrs: ScatterAttributes) -> Kernel:
        dim, number = attrs
        x = local.input(0)
        if not x.ndim:
            return local.bind(self.kernel, 0, number)
        size, offset = x.shape[dim], local.input_offset(0)[dim]
        scatter = local.pick(kernels.scatter)
        if local.inputs[2] is None:
            return lambda x, index, none: scatter(x, dim, index, number, offset, size)
        return lambda x, index, source: scatter(x, dim, index, source, offset, size)

    def vjp(
        self,
        needs: Needs,
        dy: Tensor,
        y: Meta,
        x: Meta,
        index: Tensor,
        source: Meta | None,
        attrs: ScatterAttributes,
    ) -> Gradients:
        dx = needs[0] and _scatter((dy, index, None), attrs.dim, 0)
        return dx, None, source is not None and needs[2] and _gather(dy, index, attrs.dim)


_gather = binary(Gather())
_add_at = binary(AddAt())
_scatter = general_of(Scatter(), "x index source?")


@register_function
def gather(
    input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Tensor | None = None
) -> Tensor:
    """y[i][j][k] = input[i][index[i][j][k]][k] for dim 1, and so on for any dim.

    A split of `dim` becomes a partial sum. Raises OutOfRangeError naming a wrong index.
    """
    if out is not None:
        return give_to(out, gather(input, dim, index, sparse_grad=sparse_grad))
    return _gather(input, index, dim)


def add_at(dy: Tensor, index: Tensor, shape: Shape, dim: int) -> Tensor:
    """Zeros of `shape` with `dy` added at the positions of `index`, which has dy's shape."""
    return _add_at(dy, index, *_at_attributes(shape, dim, index.meta.shape))


@lru_cache(maxsize=4096)
def _at_attributes(shape: Shape, dim: int, index: Shape) -> AddAtAttributes:
    dim = wrap(dim, len(shape))
    full = tuple([d for d, size in enumerate(shape) if d != dim and index[d] == size])
    return AddAtAttributes(dim, shape, full)


@lru_cache(maxsize=4096)
def _cut(source: Meta, index: Meta, x: Meta, what: str) -> Entries | None:
    """The part of a source that an index reads, None for all; raises torch's errors."""
    if source.dtype != x.dtype:
        raise OnefoldRuntimeError(
            f"{what}(): Expected self.dtype to be equal to src.dtype, but got {x.dtype} and "
            f"{source.dtype}"
        )
    if index.ndim != source.ndim or any(
        n > m for n, m in zip(index.shape, source.shape, strict=True)
    ):
        raise OnefoldRuntimeError(
            f"Expected index {list(index.shape)} to be no larger than src {list(source.shape)} "
            f"in every dim ({what})"
        )
    entries: Entries = tuple(
        None if n == m else (0, n, 1) for n, m in zip(index.shape, source.shape, strict=True)
    )
    return entries if any(entries) else None


def source_for(source: Tensor, index: Tensor, x: Tensor, what: str) -> Tensor:
    """The part of a source that an index reads."""
    entries = _cut(source.meta, index.meta, x.meta, what)
    return source if entries is None else slice_by(source, entries)


@lru_cache(maxsize=4096)
def checked_dim(x: Meta, dim: int, index: Meta, what: str) -> int:
    """The dim counted from 0; raises torch's errors for the index."""
    dim = wrap(dim, x.ndim)
    if index.dtype is not torch.int64:
        raise OnefoldRuntimeError(
            f"{what}(): Expected dtype int64 for index, but got {index.dtype}"
        )
    if index.ndim != x.ndim or any(
        n > m for d, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)) if d != dim
    ):
        raise OnefoldRuntimeError(
            f"{what}(): Expected index {list(index.shape)} to be no larger than self "
            f"{list(x.shape)} apart from dimension {dim}"
        )
    return dim


@register_function
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | Number | None = None,
    *,
    value: Number | None = None,
    reduce: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """`input` with the values of `src` (a tensor or a number) at positions `index` along `dim`.

    Where an index occurs twice, one of the values stays.
    """
    if out is not None:
        return give_to(out, scatter(input, dim, index, src, value=value, reduce=reduce))
    src = value if src is None else src
    if reduce is not None:
        if reduce != "add" or not isinstance(src, Tensor):
            raise OnefoldValueError(
                f'scatter: reduce={reduce!r} is not supported; use reduce="add" with a tensor, or '
                "scatter_reduce"
            )
        return scatter_add(input, dim, index, src)
    check_tensors("scatter", input, index)
    dim = checked_dim(input.meta, dim, index.meta, "scatter")
    if isinstance(src, Tensor):
        return _scatter((input, index, source_for(src, index, input, "scatter")), dim, 0)
    if not isinstance(src, (int, float, complex)):
        raise OnefoldTypeError(f"scatter: src must be a tensor or a number, but got {src!r}")
    return _scatter((input, index, None), dim, src)


@register_function
def scatter_add(
    input: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """`input` plus the values of `src` at positions `index` along `dim`, in a fixed order."""
    if out is not None:
        return give_to(out, scatter_add(input, dim, index, src))
    check_tensors("scatter_add", input, index, src)
    dim = checked_dim(input.meta, dim, index.meta, "scatter_add")
    source = source_for(src, index, input, "scatter_add")
    return add(input, add_at(source, index, tuple(input.shape), dim))


@register_function
def take_along_dim(
    input: Tensor, indices: Tensor, dim: int | None = None, *, out: Tensor | None = None
) -> Tensor:
    """`gather` with broadcasting; without `dim`, of the flattened tensors."""
    if out is not None:
        return give_to(out, take_along_dim(input, indices, dim))
    if dim is None:
        return take_along_dim(reshape(input, -1), reshape(indices, -1), 0)
    if input.ndim != indices.ndim:
        raise OnefoldRuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {input.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    dim = wrap(dim, input.ndim)
    both = (input, indices)
    common = broadcast_shapes(*[(*x.shape[:dim], 1, *x.shape[dim + 1 :]) for x in both])
    x, index = [expand(x, *common[:dim], x.shape[dim], *common[dim + 1 :]) for x in both]
    return gather(x, dim, where(index < 0, index + x.shape[dim], index))
