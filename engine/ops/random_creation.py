"""Random creation. Numbers depend on the logical index, not on the layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...errors import OnefoldRuntimeError
from ...kernels import random_ref as random_kernels
from ...kernels.select import pick
from ..generator import Generator, default_generator
from ..meta import Box
from ..names import register_function
from ..tensor import Tensor
from .creation import Size, make, read_size


def random_source(
    what: str,
    shape: Size,
    dtype: torch.dtype,
    fill: Callable[..., torch.Tensor],
    generator: Generator | None,
    layout: dict[str, Any],
    **options: Any,
) -> Tensor:
    """A random tensor: `fill` is a box-filling kernel of kernels/random, with its options."""
    source = generator or default_generator
    shape = tuple(shape)
    draw = source.draw()

    def maker(box: Box, device: torch.device) -> torch.Tensor:
        drawn = {"seed": draw.seed, "call": draw.call, "dtype": dtype, "device": device}
        return pick(fill, device.type)(shape, *box, **drawn, **options)  # type: ignore[no-any-return]

    try:
        return make(what, shape, dtype, maker, is_random=True, **layout)
    except Exception:
        source.set_state((draw.seed, draw.call))  # a bad call changes nothing
        raise


@register_function
def rand(
    *size: Any, dtype: torch.dtype | None = None, generator: Generator | None = None, **layout: Any
) -> Tensor:
    """Uniform numbers in [0, 1); the same for every layout.

    >>> import onefold as flow
    >>> p = flow.placement("cpu", [0, 1])
    >>> flow.manual_seed(1); a = flow.rand(4, 3, placement=p, sbp=flow.sbp.split(0))
    <onefold.engine.generator.Generator object at ...>
    >>> flow.manual_seed(1); b = flow.rand(4, 3)
    <onefold.engine.generator.Generator object at ...>
    >>> bool((a.numpy() == b.numpy()).all())
    True
    """
    kind = dtype or torch.get_default_dtype()
    return random_source(
        "rand", read_size(size, "rand", layout), kind, random_kernels.uniform, generator, layout
    )


@register_function
def randn(
    *size: Any, dtype: torch.dtype | None = None, generator: Generator | None = None, **layout: Any
) -> Tensor:
    """Standard normal numbers; the same for every layout."""
    kind = dtype or torch.get_default_dtype()
    return random_source(
        "randn", read_size(size, "randn", layout), kind, random_kernels.normal, generator, layout
    )


@register_function
def normal(
    mean: float,
    std: float,
    size: Size,
    *,
    dtype: torch.dtype | None = None,
    generator: Generator | None = None,
    **layout: Any,
) -> Tensor:
    """Normal numbers of this mean and standard deviation."""
    kind = dtype or torch.get_default_dtype()
    shape, fill = read_size((size,), "normal"), random_kernels.normal
    return random_source("normal", shape, kind, fill, generator, layout, mean=mean, std=std)


@register_function
def randint(
    low: Any = 0,
    high: Any = None,
    size: Any = None,
    *,
    dtype: torch.dtype | None = None,
    generator: Generator | None = None,
    **layout: Any,
) -> Tensor:
    """Integers in [low, high); `randint(high, size)` starts at 0."""
    if size is None:
        low, high, size = 0, low, high
    if not low < high:
        raise OnefoldRuntimeError(f"randint: needs low < high, but got low={low}, high={high}")
    kind = dtype or torch.int64
    shape, fill = read_size((size,), "randint"), random_kernels.randint
    return random_source("randint", shape, kind, fill, generator, layout, low=low, high=high)


@register_function
def randperm(
    n: int, *, dtype: torch.dtype = torch.int64, generator: Generator | None = None, **layout: Any
) -> Tensor:
    """A random permutation of 0 .. n-1, the same for every layout."""

    def fill(shape: Size, offset: Size, size: Size, **draw: Any) -> torch.Tensor:
        order = pick(random_kernels.randperm, draw["device"].type)(n, **draw)
        return order[offset[0] : offset[0] + size[0]]  # type: ignore[no-any-return]

    return random_source("randperm", (n,), dtype, fill, generator, layout)
