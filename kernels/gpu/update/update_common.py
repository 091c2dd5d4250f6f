"""What the kernels of several update rules share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def gradient_of(grad, at, mask, scale, SCALED: tl.constexpr, WIDE: tl.constexpr):
    """A block of a gradient, times `scale`."""
    g = tl.load(grad + at, mask=mask).to(WIDE)
    if SCALED:
        g = g * tl.load(scale).to(WIDE)
    return g


@triton.jit
def keep(x, at, mask, value):
    """Write a block in the dtype of its tensor."""
    tl.store(x + at, value.to(x.dtype.element_ty), mask=mask)


@triton.jit
def tensor_of(table, start):
    """The number of this program's tensor in the table's lists."""
    return tl.load(table + start + tl.program_id(0)) >> 32


def numbers_on(device: torch.device, *numbers: float | Tensor) -> Tensor:
    """Numbers, and 0-d tensors on the device, as one float64 tensor on the device."""
    plain = [0.0 if isinstance(number, Tensor) else number for number in numbers]
    found = torch.tensor(plain, dtype=torch.float64).to(device, non_blocking=True)
    for i, number in enumerate(numbers):
        if isinstance(number, Tensor):
            found[i].copy_(number, non_blocking=True)
    return found


def corrections(
    step: int | Tensor | None, betas: tuple[float, float]
) -> tuple[float | Tensor, float | Tensor]:
    """The bias corrections of Adam's first moment and of the root of its second moment."""
    if step is None:
        return 1.0, 1.0
    first, second = betas
    if isinstance(step, Tensor):
        count = step.double()
        return (1.0 - first**count).reciprocal(), (1.0 - second**count).rsqrt()
    return 1.0 / (1.0 - first**step), (1.0 - second**step) ** -0.5


def dense(xs: Sequence[Tensor]) -> list[Tensor]:
    """Dense tensors. The caller must keep them until the launch, which only gets addresses."""
    return [x.contiguous() for x in xs]
