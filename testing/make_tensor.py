"""make_tensor: tensors of random values for tests, as torch.testing makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..engine.argument_types import DeviceLike
from ..engine.ops.cast import cast
from ..engine.ops.random_creation import rand, randint
from ..engine.ops.where import where
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldValueError

_BOUNDS = {torch.bool: (0, 2), torch.uint8: (0, 10)}


def make_tensor(
    *shape: int | Sequence[int],
    dtype: torch.dtype,
    device: DeviceLike | None = None,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: torch.memory_format | None = None,
) -> Tensor:
    """A tensor of uniform random values from [low, high), which follow `flow.manual_seed`.

    Without bounds they are those of torch: 0 and 2 for bools, 0 and 10 for uint8, -9 and 10 for
    other integers, -9 and 9 else. With `exclude_zero` zeros become the smallest positive number, or
    1. Raises OnefoldValueError for bounds in the wrong order.

    >>> import onefold as flow
    >>> x = flow.testing.make_tensor(2, 3, dtype=flow.float64, device="cpu", low=1, high=2)
    >>> x.shape, bool((x >= 1).all() & (x < 2).all())
    (torch.Size([2, 3]), True)
    """
    first: Any = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    size = [int(each) for each in first]
    floating = dtype.is_floating_point or dtype.is_complex
    default = (
        (-9, 9) if floating else {torch.bool: (0, 2), torch.uint8: (0, 10)}.get(dtype, (-9, 10))
    )
    lowest = default[0] if low is None else low
    highest = default[1] if high is None else high
    if lowest >= highest and not (floating and lowest == highest):
        raise OnefoldValueError(
            f"make_tensor: low must be less than high, but they are {lowest} and {highest}"
        )
    wide = [*size[:-1], 2 * size[-1]] if noncontiguous and size else size
    if floating:
        found = _uniform(wide, lowest, highest, dtype, device)
    else:
        found = cast(randint(int(lowest), int(highest), tuple(wide), device=device), dtype)
    if exclude_zero:
        least = torch.finfo(dtype).tiny if floating else 1
        found = where(tensor_ops.eq(found, 0), tensor_ops.full_like(found, least), found)
    if noncontiguous and size:
        found = found[..., ::2]
    elif memory_format is not None:
        found = tensor_ops.contiguous(found, memory_format=memory_format)
    return found.requires_grad_() if requires_grad else found


def _uniform(
    size: list[int], low: float, high: float, dtype: torch.dtype, device: DeviceLike | None
) -> Tensor:
    if dtype.is_complex:
        part = dtype.to_real()
        pair = [_uniform(size, low, high, part, device) for _ in range(2)]
        made: Tensor = tensor_ops.complex(*pair)
        return made
    wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    return cast(rand(tuple(size), dtype=wide, device=device) * (high - low) + low, dtype)
