"""Pooling of as many windows as asked for: the windows follow from the size of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ..generated import register_variant
from ..names import register_function
from ..tensor import Tensor
from .conv import Ints
from .dims import squeeze
from .pool import Pooled, adaptive_avg, adaptive_max, as_planes

OutputSizes: TypeAlias = int | Sequence[int | None] | None


def _output_size(input: Tensor, size: OutputSizes, planes: int) -> Ints:
    wanted = (size,) * planes if size is None or isinstance(size, int) else size
    own = input.shape[input.ndim - planes :]
    return tuple(mine if want is None else want for want, mine in zip(wanted, own, strict=True))


def _avg(dims: int, input: Tensor, output_size: OutputSizes) -> Tensor:
    x = as_planes(input, dims, f"adaptive_avg_pool{dims}d")
    return adaptive_avg[dims](x, dims, _output_size(input, output_size, dims))


_AVG_POOL2D = """
    The means of as many windows as asked for (None: as many as there are), as in torch.

    Example: `adaptive_avg_pool2d(x, 1)` averages each plane of x.
    """

adaptive_avg_pool2d = register_variant("adaptive_avg_pool2d", _avg, 2, _AVG_POOL2D)
adaptive_avg_pool3d = register_variant(
    "adaptive_avg_pool3d",
    _avg,
    3,
    "The means of as many windows of (N, C, D, H, W) or (C, D, H, W); see `adaptive_avg_pool2d`.",
)


@register_function
def adaptive_avg_pool1d(input: Tensor, output_size: OutputSizes) -> Tensor:
    """The means of as many windows of (N, C, L) or (C, L) as asked for, as in torch."""
    x = as_planes(input, 1, "adaptive_avg_pool1d")
    return squeeze(adaptive_avg[2](x, 2, (1, *_output_size(input, output_size, 1))), -2)


def _with_indices(
    dims: int, input: Tensor, output_size: OutputSizes, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    x = as_planes(input, dims, f"adaptive_max_pool{dims}d")
    size = _output_size(input, output_size, dims)
    if dims > 1:
        y, places = adaptive_max(x, dims, size)
        return y, places
    y, places = adaptive_max(x, 2, (1, *size))
    return squeeze(y, -2), squeeze(places, -2)


def _max(
    dims: int, input: Tensor, output_size: OutputSizes, return_indices: bool = False
) -> Pooled:
    y, places = _with_indices(dims, input, output_size)
    return (y, places) if return_indices else y


_MAX_POOL = """
    Maxima over the last {} dims, of windows such that the result has `output_size`, as in torch.

    With `return_indices` also the place of each maximum in its plane.
    """
for _dims in (1, 2, 3):
    register_variant(f"adaptive_max_pool{_dims}d", _max, _dims, _MAX_POOL.format(_dims))
    register_variant(
        f"adaptive_max_pool{_dims}d_with_indices",
        _with_indices,
        _dims,
        f"`adaptive_max_pool{_dims}d` with the places of the maxima.",
    )
