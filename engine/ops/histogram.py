"""Counts of values: bincount and histogramdd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...errors import OnefoldRuntimeError
from .. import interpreter
from ..argument_types import Dims
from ..names import register_function
from ..tensor import Tensor
from ..values import no_values, whole
from .creation import zeros
from .gather import scatter_add
from .index_parsing import like_index
from .like import ones_like, replicated_like

_OUTSIDE = "Call histogramdd() outside build()"


@register_function
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """The number of occurrences of each value in a vector of non-negative integers.

    With `weights` the sum of the weights of each number, in float64 unless they are float32. The
    length of the result is one more than the largest number, and at least `minlength`: the largest
    number is read. Raises OnefoldRuntimeError for other inputs.

    Example:
        >>> import onefold as flow
        >>> flow.bincount(flow.tensor([0, 2, 2]))
        tensor([1, 0, 2])
    """
    kinds = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    if input.ndim != 1 or input.dtype not in kinds or minlength < 0:
        raise OnefoldRuntimeError(
            "bincount takes a vector of integers and a minlength of at least 0, but got shape "
            f"{tuple(input.shape)}, {input.dtype} and minlength {minlength}"
        )
    if weights is not None and weights.shape != input.shape:
        raise OnefoldRuntimeError(
            f"bincount: weights must have the input's shape {tuple(input.shape)}, but have "
            f"{tuple(weights.shape)}"
        )
    if interpreter.capturing():
        raise no_values(
            "The length of the result depends on them: where the numbers are below some n, count "
            "with zeros(n).index_add_(0, index, ones), or call bincount() outside build()"
        )
    if weights is None and input.is_local and input.meta.has_data:
        counts = _counts(whole(input), minlength)
        if counts is not None:
            return like_index(counts, input, copy=False)
    least, most = (int(input.min()), int(input.max())) if input.numel() else (0, -1)
    if least < 0:
        raise OnefoldRuntimeError(f"bincount: numbers must not be negative, but one is {least}")
    if weights is None:
        weights = ones_like(input, dtype=torch.int64)
    elif weights.dtype is not torch.float32:
        weights = weights.double()
    index = input.long()
    none = zeros(max(most + 1, minlength), dtype=weights.dtype, **replicated_like(weights))
    return scatter_add(none, 0, index, weights)


def _counts(values: torch.Tensor, minlength: int) -> torch.Tensor | None:
    """torch's bincount on the host; None elsewhere, and for values that it refuses."""
    if values.device.type != "cpu":
        return None
    try:
        return torch.bincount(values, minlength=minlength)
    except RuntimeError:
        return None


@register_function
def histogramdd(
    input: Tensor,
    bins: Dims | Sequence[Tensor],
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """(the histogram of points, one in each row, with a dim for each column; the edges of the bins)

    Every process reads the whole tensors. No gradient.
    """
    given: Any = bins
    if not isinstance(bins, int):
        given = [whole(part, _OUTSIDE) if isinstance(part, Tensor) else part for part in bins]
    counts, found = torch.histogramdd(
        whole(input, _OUTSIDE),
        given,
        range=range,
        weight=None if weight is None else whole(weight, _OUTSIDE),
        density=density,
    )
    return like_index(counts, input), tuple(like_index(part, input) for part in found)
