"""Stacks and splits by numpy's names, such as hstack and hsplit, and meshgrid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ...errors import OnefoldRuntimeError
from ..argument_types import Dims
from ..names import register_function
from ..out_tensors import give_to
from ..tensor import Tensor
from .cat_split import cat, listed, split_by
from .data_movement import unpack, wrap
from .dims import expand
from .view import at_least, reshape, view


@register_function
def hstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The concatenation along dim 1, of vectors along dim 0."""
    if out is not None:
        return give_to(out, hstack(tensors))
    parts = [at_least(x, 1) for x in listed(tensors, "hstack")]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


@register_function
def vstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The concatenation along dim 0, of vectors as rows."""
    if out is not None:
        return give_to(out, vstack(tensors))
    return cat([at_least(x, 2) for x in listed(tensors, "vstack")], 0)


@register_function
def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The concatenation along dim 2."""
    if out is not None:
        return give_to(out, dstack(tensors))
    return cat([at_least(x, 3) for x in listed(tensors, "dstack")], 2)


@register_function
def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The concatenation along dim 1, of vectors as columns."""
    if out is not None:
        return give_to(out, column_stack(tensors))
    parts = [x if x.ndim > 1 else reshape(x, x.numel(), 1) for x in listed(tensors, "column_stack")]
    return cat(parts, 1)


@register_function
def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """Grids of coordinates: tensor i varies along dim i; "xy" exchanges the first two dims.

    Raises OnefoldRuntimeError for tensors of more than one dim or another `indexing`.
    """
    axes = [at_least(x, 1) for x in listed(unpack(tensors), "meshgrid")]
    if indexing not in ("ij", "xy"):
        raise OnefoldRuntimeError(
            f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}'
        )
    if any(x.ndim > 1 for x in axes):
        raise OnefoldRuntimeError("meshgrid: Expected 0D or 1D tensors in the tensor list")
    if indexing == "xy":
        axes[:2] = axes[1::-1]
    shape = [x.shape[0] for x in axes]
    grids = [
        expand(view(x, x.shape[0], *[1] * (len(axes) - 1 - place)), shape)
        for place, x in enumerate(axes)
    ]
    if indexing == "xy":
        grids[:2] = grids[1::-1]
    return tuple(grids)


_MAX_PARTS = 1 << 20  # each is a tensor


@register_function
def tensor_split(
    input: Tensor, indices_or_sections: Dims | Tensor, dim: int = 0
) -> tuple[Tensor, ...]:
    """Parts along `dim`: that many, the first ones larger by one, or those between the indices."""
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if not input.ndim:
        raise OnefoldRuntimeError("tensor_split expected at least a 1-dimensional tensor")
    dim = wrap(dim, input.ndim)
    size = input.shape[dim]
    if isinstance(indices_or_sections, int):
        count = indices_or_sections
        if count <= 0:
            raise OnefoldRuntimeError(f"number of sections must be larger than 0, got {count}")
        if count > _MAX_PARTS:
            raise OnefoldRuntimeError(
                f"tensor_split makes {_MAX_PARTS} parts at most, but was asked for {count}"
            )
        sizes = tuple(size // count + (i < size % count) for i in range(count))
        return split_by(input, sizes, dim, multiple_views=False)
    bounds = [0, *[slice(i).indices(size)[1] for i in indices_or_sections], size]
    if any(a > b for a, b in pairwise(bounds)):
        # Parts that overlap or are empty because the indices go back: each is a slice of its own.
        stops = [max(a, b) for a, b in pairwise(bounds)]
        pairs = zip(bounds, stops, strict=False)
        return tuple(input[(slice(None),) * dim + (slice(a, b),)] for a, b in pairs)
    return split_by(input, tuple(b - a for a, b in pairwise(bounds)), dim, multiple_views=False)


def _split_along(x: Tensor, how: Dims, dim: int, what: str) -> tuple[Tensor, ...]:
    if isinstance(how, int) and (how <= 0 or x.shape[dim] % how):
        raise OnefoldRuntimeError(
            f"{what} attempted to split along dimension {dim}, but the size of the dimension "
            f"{x.shape[dim]} is not divisible by the split_size {how}!"
        )
    return tensor_split(x, how, dim)


@register_function
def hsplit(input: Tensor, indices_or_sections: Dims) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 1, of vectors along dim 0, in equal parts."""
    if not input.ndim:
        raise OnefoldRuntimeError("torch.hsplit requires a tensor with at least 1 dimension")
    return _split_along(input, indices_or_sections, int(input.ndim > 1), "torch.hsplit")


@register_function
def vsplit(input: Tensor, indices_or_sections: Dims) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 0 of a tensor with at least 2 dims, in equal parts."""
    if input.ndim < 2:
        raise OnefoldRuntimeError("torch.vsplit requires a tensor with at least 2 dimension")
    return _split_along(input, indices_or_sections, 0, "torch.vsplit")


@register_function
def dsplit(input: Tensor, indices_or_sections: Dims) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 2 of a tensor with at least 3 dims, in equal parts."""
    if input.ndim < 3:
        raise OnefoldRuntimeError("torch.dsplit requires a tensor with at least 3 dimension")
    return _split_along(input, indices_or_sections, 2, "torch.dsplit")
