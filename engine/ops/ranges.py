"""arange, linspace, logspace, hann_window and eye."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ...errors import OnefoldRuntimeError
from ..meta import Box
from ..names import register_function
from ..tensor import Tensor
from .creation import make, read_size


@register_function
def arange(
    start: Any, end: Any = None, step: Any = 1, *, dtype: torch.dtype | None = None, **layout: Any
) -> Tensor:
    """start, start + step, ... below end (integers give int64, as in torch)."""
    if end is None:
        start, end = 0, start
    if step == 0:
        raise OnefoldRuntimeError("arange: step must be nonzero")
    if (end - start) * step < 0:
        raise OnefoldRuntimeError(
            f"arange: upper bound and lower bound inconsistent with step sign: start={start}, "
            f"end={end}, step={step}"
        )
    if any(isinstance(v, float) and not math.isfinite(v) for v in (start, end, step)):
        raise OnefoldRuntimeError(f"arange: unsupported range: {start} to {end} by {step}")
    whole_numbers = all(isinstance(v, (int, np.integer)) for v in (start, end, step))
    kind = dtype or (torch.int64 if whole_numbers else torch.get_default_dtype())
    count = -((start - end) // step) if whole_numbers else math.ceil((end - start) / step)
    computed = torch.int64 if whole_numbers else torch.float64

    def maker(box: Box, device: torch.device) -> torch.Tensor:
        first, size = box[0][0], box[1][0]
        index = torch.arange(first, first + size, dtype=computed, device=device)
        values: torch.Tensor = start + index * step
        return values.to(kind)

    return make("arange", (int(count),), kind, maker, **layout)


def _evenly(start: float, end: float, steps: int, box: Box, device: torch.device) -> torch.Tensor:
    """The part of `steps` evenly spaced float64 values that lies in the box."""
    first, size = box[0][0], box[1][0]
    index = torch.arange(first, first + size, dtype=torch.float64, device=device)
    gap = (end - start) / max(steps - 1, 1)
    # Counted from the nearer end, so that both ends are exact.
    return torch.where(index < steps / 2, start + gap * index, end - gap * (steps - 1 - index))


@register_function
def linspace(
    start: float, end: float, steps: int, *, dtype: torch.dtype | None = None, **layout: Any
) -> Tensor:
    """`steps` evenly spaced values from start to end, both included."""
    kind = dtype or torch.get_default_dtype()

    def maker(box: Box, device: torch.device) -> torch.Tensor:
        return _evenly(start, end, steps, box, device).to(kind)

    return make("linspace", read_size((steps,), "linspace"), kind, maker, **layout)


@register_function
def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    dtype: torch.dtype | None = None,
    **layout: Any,
) -> Tensor:
    """`steps` values from base**start to base**end, evenly spaced on a logarithmic scale."""
    kind = dtype or torch.get_default_dtype()

    def maker(box: Box, device: torch.device) -> torch.Tensor:
        return (base ** _evenly(start, end, steps, box, device)).to(kind)

    return make("logspace", read_size((steps,), "logspace"), kind, maker, **layout)


@register_function
def hann_window(
    window_length: int, periodic: bool = True, *, dtype: torch.dtype | None = None, **layout: Any
) -> Tensor:
    """The Hann window, sin^2(pi n / N) with N = window_length (one less unless `periodic`)."""
    kind = dtype or torch.get_default_dtype()
    period = max(window_length if periodic else window_length - 1, 1)

    def maker(box: Box, device: torch.device) -> torch.Tensor:
        first, size = box[0][0], box[1][0]
        index = torch.arange(first, first + size, dtype=torch.float64, device=device)
        window = torch.sin(index * (math.pi / period)) ** 2
        return (window if window_length > 1 else torch.ones_like(window)).to(kind)

    return make("hann_window", read_size((window_length,), "hann_window"), kind, maker, **layout)


@register_function
def eye(n: int, m: int | None = None, *, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """Ones on the diagonal, zeros elsewhere; n rows, m (default n) columns."""
    kind = dtype or torch.get_default_dtype()

    def maker(box: Box, device: torch.device) -> torch.Tensor:
        (row, column), (height, width) = box
        part = torch.zeros(height, width, dtype=kind, device=device)
        low, high = max(row, column), min(row + height, column + width)
        if high > low:
            index = torch.arange(low, high, device=device)
            part[index - row, index - column] = 1
        return part

    return make("eye", (n, n if m is None else m), kind, maker, **layout)
