"""Vectors whose values follow from their places: arange, linspace, logspace and a window."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Unpack

import numpy as np
import torch

from ...errors import OnefoldRuntimeError, warn
from ..argument_errors import as_numbers
from ..argument_types import Layout, TypedLayout
from ..meta import Box
from ..names import register_function
from ..out_tensors import give_to, made_for
from ..tensor import Tensor, from_shards
from .creation import make, plain_meta, read_size

# The values at a range of places of a vector.
Values = Callable[[builtins.range, torch.device], torch.Tensor]


def _vector(what: str, count: int, values: Values, layout: TypedLayout) -> Tensor:
    """A vector of values that are computed from a range of places."""
    kind = layout.pop("dtype", None) or torch.get_default_dtype()
    placed: Layout = layout
    shape = read_size((count,), what)
    plain = plain_meta(shape, kind, layout)
    if plain is not None and plain.device is not None:
        return from_shards((values(builtins.range(count), plain.device).to(kind),), plain)

    def maker(box: Box, device: torch.device) -> torch.Tensor:
        first, size = box[0][0], box[1][0]
        return values(builtins.range(first, first + size), device).to(kind)

    return make(what, shape, kind, maker, **placed)


def _of_places(values: Callable[[torch.Tensor], torch.Tensor]) -> Values:
    """Values that are computed from their places in float64."""

    def of_range(places: builtins.range, device: torch.device) -> torch.Tensor:
        first, last = places.start, places.stop
        return values(torch.arange(first, last, dtype=torch.float64, device=device))

    return of_range


def _integers(values: builtins.range, device: torch.device) -> torch.Tensor:
    """The integers of a range; its `stop` may be none of torch's."""
    if not values:
        return torch.empty(0, dtype=torch.int64, device=device)
    stop = values[-1] + (1 if values.step > 0 else -1)
    return torch.arange(values.start, stop, values.step, dtype=torch.int64, device=device)


def _local_integers(values: builtins.range, layout: TypedLayout) -> Tensor | None:
    """A local vector of the integers of a range; None where that needs more than a device."""
    kind = layout.get("dtype")
    if not values or (kind is not None and kind is not torch.int64):
        return None
    placed: TypedLayout = {**layout}
    placed.pop("dtype", None)
    plain = plain_meta((len(values),), torch.int64, placed)
    if plain is None or plain.device is None:
        return None
    return from_shards((_integers(values, plain.device),), plain)


def _of_integers(start: int, step: int) -> Values:
    """start + i * step of whole numbers."""

    def of_range(places: builtins.range, device: torch.device) -> torch.Tensor:
        return torch.arange(places.start, places.stop, device=device) * step + start

    return of_range


def _is_integer(kind: torch.dtype | None) -> bool:
    return not (kind is None or kind.is_floating_point or kind.is_complex or kind is torch.bool)


def _whole(*numbers: float) -> list[int]:
    """What torch makes of the numbers of a vector of integers."""
    return [int(number) for number in numbers]


def _check(what: str, *numbers: float) -> None:
    """Raise OnefoldRuntimeError unless finite steps lead from the start towards the end."""
    start, end, step = numbers
    if step == 0:
        raise OnefoldRuntimeError(f"{what}: step must be nonzero")
    if (end - start) * step < 0:
        raise OnefoldRuntimeError(
            f"{what}: upper bound and lower bound inconsistent with step sign: start={start}, "
            f"end={end}, step={step}"
        )
    if not all(abs(v) < math.inf for v in numbers):
        raise OnefoldRuntimeError(f"{what}: unsupported range: {start} to {end} by {step}")


@register_function
def arange(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    out: Tensor | None = None,
    **layout: Unpack[TypedLayout],
) -> Tensor:
    """start, start + step, ... below end (integers give int64, as in torch)."""
    if out is not None:
        return give_to(out, arange(start, end, step, **made_for(out, layout)))
    if end is None:
        start, end = 0, start
    if type(start) is int and type(end) is int and type(step) is int:
        made = _local_integers(builtins.range(start, end, step), layout) if step else None
        if made is not None:
            return made
    start, end, step = as_numbers((start, end, step))
    _check("arange", start, end, step)
    kind = layout.get("dtype")
    count = math.ceil((end - start) / step)
    if not all(isinstance(v, (int, np.integer)) for v in (start, end, step)):
        if not _is_integer(kind):
            return _vector("arange", count, _of_places(lambda i: start + i * step), layout)
        start, end, step = _whole(start, end, step)
        if kind is not torch.int64:  # of which torch counts the numbers that were given
            return _vector("arange", count, _of_integers(start, step), layout)
        _check("arange", start, end, step)
    numbers = builtins.range(int(start), int(end), int(step))
    layout["dtype"] = kind or torch.int64

    def of_integers(places: builtins.range, device: torch.device) -> torch.Tensor:
        return _integers(numbers[places.start : places.stop], device)

    return _vector("arange", len(numbers), of_integers, layout)


@register_function
def range(
    start: float,
    end: float,
    step: float = 1,
    *,
    out: Tensor | None = None,
    **layout: Unpack[TypedLayout],
) -> Tensor:
    """start, start + step, ... up to end, which is included; torch deprecates it for `arange`."""
    warn("range is deprecated, since its end is included; use arange", UserWarning)
    if out is not None:
        return give_to(out, range(start, end, step, **made_for(out, layout)))
    _check("range", start, end, step)
    values = _of_places(lambda place: start + place * step)
    if _is_integer(layout.get("dtype")):
        start, end, step = _whole(start, end, step)
        _check("range", start, end, step)
        values = _of_integers(start, step)
    return _vector("range", math.floor((end - start) / step) + 1, values, layout)


def _evenly(start: float, end: float, steps: int, place: torch.Tensor) -> torch.Tensor:
    """The values at these places of `steps` evenly spaced ones."""
    gap = (end - start) / max(steps - 1, 1)
    # Counted from the nearer end, so that both ends are exact.
    return torch.where(place < steps / 2, start + gap * place, end - gap * (steps - 1 - place))


@register_function
def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    out: Tensor | None = None,
    **layout: Unpack[TypedLayout],
) -> Tensor:
    """`steps` evenly spaced values from start to end, both included."""
    if out is not None:
        return give_to(out, linspace(start, end, steps, **made_for(out, layout)))
    if _is_integer(layout.get("dtype")):
        start, end = _whole(start, end)
    values = _of_places(lambda place: _evenly(start, end, steps, place))
    return _vector("linspace", steps, values, layout)


@register_function
def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    out: Tensor | None = None,
    **layout: Unpack[TypedLayout],
) -> Tensor:
    """`steps` values from base**start to base**end, evenly spaced on a logarithmic scale."""
    if out is not None:
        return give_to(out, logspace(start, end, steps, base, **made_for(out, layout)))
    if _is_integer(layout.get("dtype")):
        start, end = _whole(start, end)
    values = _of_places(lambda place: base ** _evenly(start, end, steps, place))
    return _vector("logspace", steps, values, layout)


@register_function
def hann_window(window_length: int, periodic: bool = True, **layout: Unpack[TypedLayout]) -> Tensor:
    """The Hann window, sin^2(pi n / N) with N = window_length (one less unless `periodic`)."""
    period = max(window_length if periodic else window_length - 1, 1)

    def values(place: torch.Tensor) -> torch.Tensor:
        window = torch.sin(place * (math.pi / period)) ** 2
        return window if window_length > 1 else torch.ones_like(window)

    return _vector("hann_window", window_length, _of_places(values), layout)
