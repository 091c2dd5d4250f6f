"""gather and scatter along one dim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ...errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from ...kernels import gather_scatter_ref as kernels
from ..dispatcher import binary, general
from ..meta import Meta
from ..names import register_function
from ..op import Kernel, Local, Op
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .arithmetic import add
from .data_movement import contribution, passes_first, reductions, wrap
from .dims import expand
from .slicing import Entries, slice_by
from .view import reshape

Shape = tuple[int, ...]


class GatherAttributes(NamedTuple):
    """The dim."""

    dim: int


class Gather(Op):
    """y[..., i, ...] = x[..., index[..., i, ...], ...] along a dim."""

    name = "gather"
    attributes = GatherAttributes
    saves = (1,)
    flops_per_element = 0.0

    def kernel(self, x: torch.Tensor, index: torch.Tensor, dim: int) -> torch.Tensor:
        return torch.gather(x, dim, index)

    def rule(self, axis: Axis, x: Meta, index: Meta, attrs: GatherAttributes) -> Rule:
        dim = attrs.dim
        dim = wrap(dim, x.ndim)
        adds = contribution(x)
        found = [
            Signature((split(d), split(d)), (split(d),))
            for d in range(index.ndim)
            if d != dim and x.shape[d] == index.shape[d] and _alike(axis, d)
        ]
        found += [Signature((broadcast, split(d)), (split(d),)) for d in range(index.ndim)]
        if x.ndim:
            found.append(Signature((split(dim), broadcast), (adds,)))
        return [*found, *passes_first(x, 1)]

    def bind(self, local: Local, attrs: GatherAttributes) -> Kernel:
        x = local.inputs[0]
        assert x is not None
        gather = local.pick(kernels.gather)
        if not x.ndim:
            return lambda x, index: gather(x, 0, index)
        dim = wrap(attrs.dim, x.ndim)
        offset, mine = local.input_offset(0), local.input_shape(0)
        at, shape = local.input_offset(1), local.input_shape(1)
        start = _distance(at, offset)
        fits = all(a == b for d, (a, b) in enumerate(zip(mine, shape, strict=True)) if d != dim)
        if mine[dim] == x.shape[dim]:
            if fits:
                return lambda x, index: gather(x, dim, index)
            fit = kernels.fit
            return lambda x, index: gather(fit(x, start, shape, dim), dim, index)
        size = x.shape[dim]
        gather_held = local.pick(kernels.gather_held)

        def run(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            part = kernels.fit(x, start, shape, dim)
            return gather_held(part, dim, index, offset[dim], size)  # type: ignore[no-any-return]

        return run

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        x: Meta,
        index: Tensor,
        attrs: GatherAttributes,
    ) -> Any:
        return (add_at(dy, index, tuple(x.shape), *attrs),)


def _distance(inner: Shape, outer: Shape) -> Shape:
    """Where a box that starts at `inner` lies in one that starts at `outer`."""
    return tuple(a - b for a, b in zip(inner, outer, strict=True))


def _alike(axis: Axis, dim: int) -> bool:
    """Whether earlier axes split the dim of both inputs alike."""
    return not axis.ragged or (dim in axis.ragged[0]) == (dim in axis.ragged[1])


class AddAtAttributes(NamedTuple):
    """The dim, the shape, and the other dims in which dy is as large as the shape."""

    dim: int
    shape: Shape
    full: Shape


class AddAt(Op):
    """Zeros of a shape to which dy is added at the places of the index: the gradient of gather."""

    name = "add_at"
    attributes = AddAtAttributes
    saves = (1,)

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
        return lambda dy, index: add_at(dy, dim, index, mine, start, offset[dim], shape[dim])

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        u: Meta,
        index: Tensor,
        attrs: AddAtAttributes,
    ) -> tuple[Tensor]:
        return (_gather(dy, index, attrs.dim),)


class ScatterAttributes(NamedTuple):
    """The dim, and what to put where there is no source."""

    dim: int
    number: Any


class Scatter(Op):
    """x with the values of a source (or one number) at the places of the index along a dim."""

    name = "scatter"
    attributes = ScatterAttributes
    saves = (1,)
    flops_per_element = 0.0

    def kernel(self, x: Any, index: Any, source: Any, dim: int, number: Any) -> torch.Tensor:
        return torch.scatter(x, dim, index, number if source is None else source)

    def rule(
        self, axis: Axis, x: Meta, index: Meta, source: Meta | None, attrs: ScatterAttributes
    ) -> Rule:
        def of(mine: Any, theirs: Any, values: Any) -> Signature:
            return Signature((mine, theirs, *([] if source is None else [values])), (mine,))

        found = [
            of(split(d), split(d), split(d))
            for d in range(index.ndim)
            if d != attrs.dim and x.shape[d] == index.shape[d] and _alike(axis, d)
        ]
        if x.ndim:
            found.append(of(split(attrs.dim), broadcast, broadcast))
        passing = [s for s in reductions(x) if source or s is not partial_sum or not attrs.number]
        return [*found, *[of(sbp, broadcast, sbp) for sbp in passing]]

    def bind(self, local: Local, attrs: ScatterAttributes) -> Kernel:
        dim, number = attrs
        x = local.inputs[0]
        assert x is not None
        size = x.shape[dim] if x.ndim else 1
        offset = local.input_offset(0)[dim] if x.ndim else 0
        if not x.ndim:
            kernel = self.kernel
            return lambda x, index, source: kernel(x, index, source, 0, number)

        scatter = local.pick(kernels.scatter)

        def run(x: Any, index: Any, source: Any) -> torch.Tensor:
            values = number if source is None else source
            return scatter(x, dim, index, values, offset, size)  # type: ignore[no-any-return]

        return run

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        x: Meta,
        index: Tensor,
        source: Meta | None,
        attrs: ScatterAttributes,
    ) -> Any:
        dx = needs[0] and _scatter((dy, index, None), attrs.dim, 0)
        return dx, None, source is not None and needs[2] and _gather(dy, index, attrs.dim)


_gather = binary(Gather())
_add_at = binary(AddAt())
_scatter = general(Scatter())


@register_function
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """y[i][j][k] = input[i][index[i][j][k]][k] for dim 1, and so on for any dim.

    A split of `dim` becomes a partial sum. Raises OutOfRangeError naming a wrong index.
    """
    return _gather(input, index, dim)


def add_at(dy: Tensor, index: Tensor, shape: Shape, dim: int) -> Tensor:
    """Zeros of `shape` with `dy` added at the places of `index`, which has dy's shape."""
    dim = wrap(dim, len(shape))
    full = tuple(d for d, size in enumerate(shape) if d != dim and index.shape[d] == size)
    return _add_at(dy, index, dim, shape, full)


def _source(source: Tensor, index: Tensor, x: Tensor, what: str) -> Tensor:
    """The part of a source that an index reads; checks what torch checks."""
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
    return slice_by(source, entries) if any(entries) else source


def _check_index(x: Tensor, dim: int, index: Tensor, what: str) -> None:
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


@register_function
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: float | None = None,
    reduce: str | None = None,
) -> Tensor:
    """`input` with the values of `src` (a tensor or a number) at the places of `index` along `dim`.

    Where an index occurs twice, one of the values stays.
    """
    src = value if src is None else src
    if reduce is not None:
        if reduce != "add" or not isinstance(src, Tensor):
            raise OnefoldValueError(
                f'scatter: reduce={reduce!r} is not supported; use reduce="add" with a tensor, or '
                "scatter_reduce"
            )
        return scatter_add(input, dim, index, src)
    dim = wrap(dim, input.ndim)
    _check_index(input, dim, index, "scatter")
    if isinstance(src, Tensor):
        return _scatter((input, index, _source(src, index, input, "scatter")), dim, None)
    if not isinstance(src, (int, float, complex)):
        raise OnefoldTypeError(f"scatter: src must be a tensor or a number, but got {src!r}")
    return _scatter((input, index, None), dim, src)


@register_function
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """`input` plus the values of `src` at the places of `index` along `dim`, in a fixed order."""
    dim = wrap(dim, input.ndim)
    _check_index(input, dim, index, "scatter_add")
    added = add_at(_source(src, index, input, "scatter_add"), index, tuple(input.shape), dim)
    return add(input, added)


class ScatterReduce(Op):
    """torch.scatter_reduce; without a gradient, but for sums, which are `scatter_add`."""

    name = "scatter_reduce"
    saves = ()

    kernel = staticmethod(kernels.scatter_reduce)

    def rule(self, axis: Axis, x: Meta, index: Meta, *rest: Any) -> Rule:
        dim = rest[1]
        return [
            Signature((split(d),) * 3, (split(d),))
            for d in range(index.ndim)
            if d != dim and x.shape[d] == index.shape[d] and _alike(axis, d)
        ]


_scatter_reduce = general(ScatterReduce())


@register_function
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """The values of `src` joined at the places of `index`: "sum", "prod", "mean", "amax", "amin".

    Only sums that include `input` have a gradient.
    """
    dim = wrap(dim, input.ndim)
    if reduce == "sum" and include_self:
        return scatter_add(input, dim, index, src)
    _check_index(input, dim, index, "scatter_reduce")
    source = _source(src, index, input, "scatter_reduce")
    return _scatter_reduce((input, index, source), dim, reduce, include_self)


@register_function
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather` with broadcasting; without `dim` of the tensors seen as one dim."""
    if dim is None:
        return gather(reshape(input, -1), 0, reshape(indices, -1))
    if input.ndim != indices.ndim:
        raise OnefoldRuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {input.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    dim = wrap(dim, input.ndim)
    ones = [1 if d == dim else n for d, n in enumerate(input.shape)]
    other = [1 if d == dim else n for d, n in enumerate(indices.shape)]
    common = list(torch.broadcast_shapes(ones, other))
    x = expand(input, *[input.shape[dim] if d == dim else n for d, n in enumerate(common)])
    index = expand(indices, *[indices.shape[dim] if d == dim else n for d, n in enumerate(common)])
    return gather(x, dim, index)
