"""Random creation. Numbers depend on the logical index, not on the layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack, cast

import torch

from ...distributed import origins
from ...errors import OnefoldRuntimeError, OnefoldTypeError
from ...kernels import random_ref as random_kernels
from ...kernels.select import pick
from ..argument_types import Dims, Layout, SizedLayout, TypedLayout
from ..generator import Generator, default_generator
from ..meta import Box
from ..names import register_function
from ..out_tensors import give_to, made_for
from ..tensor import Tensor
from .creation import Size, make, read_size


def random_source(
    what: str,
    shape: Size,
    fill: Callable[..., torch.Tensor],
    generator: Generator | None,
    layout: TypedLayout,
    **options: object,
) -> Tensor:
    """A random tensor: `fill` is a box-filling kernel of kernels/random, with its options."""
    source = generator or default_generator
    if not isinstance(source, Generator):
        raise OnefoldTypeError(
            f"{what}: generator must be a flow.Generator, but got {generator!r}; make one with "
            "flow.Generator().manual_seed(seed)"
        )
    dtype = layout.pop("dtype", None) or torch.get_default_dtype()
    placed: Layout = layout
    draw = source.draw()

    def maker(box: Box, device: torch.device) -> torch.Tensor:
        drawn = {"seed": draw.seed, "call": draw.call, "dtype": dtype, "device": device}
        part: torch.Tensor = pick(fill, device.type)(tuple(shape), *box, **drawn, **options)
        return part

    if origins.state.on:
        vars(maker)["values"] = draw.seed, draw.call
    try:
        return make(what, shape, dtype, maker, is_random=True, **placed)
    except Exception:
        source.set_state((draw.seed, draw.call))  # a bad call changes nothing
        raise


@register_function
def rand(
    *sizes: Dims,
    generator: Generator | None = None,
    out: Tensor | None = None,
    **layout: Unpack[SizedLayout],
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
    if out is not None:
        return give_to(out, rand(*sizes, generator=generator, **made_for(out, layout)))
    shape = read_size(sizes, "rand", layout)
    return random_source("rand", shape, random_kernels.uniform, generator, layout)


@register_function
def randn(
    *sizes: Dims,
    generator: Generator | None = None,
    out: Tensor | None = None,
    **layout: Unpack[SizedLayout],
) -> Tensor:
    """Standard normal numbers; the same for every layout."""
    if out is not None:
        return give_to(out, randn(*sizes, generator=generator, **made_for(out, layout)))
    shape = read_size(sizes, "randn", layout)
    return random_source("randn", shape, random_kernels.normal, generator, layout)


@register_function
def randint(
    low: int = 0,
    high: Dims | None = None,
    size: Dims | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    **layout: Unpack[TypedLayout],
) -> Tensor:
    """Integers in [low, high); `randint(high, size)` starts at 0."""
    if out is not None:
        return give_to(out, randint(low, high, size, generator=generator, **made_for(out, layout)))
    if size is None:
        low, high, size = 0, low, cast("Dims", high)
    if not low < cast("int", high):
        raise OnefoldRuntimeError(f"randint: needs low < high, but got low={low}, high={high}")
    layout["dtype"] = layout.get("dtype") or torch.int64
    shape, fill = read_size((size,), "randint"), random_kernels.randint
    return random_source("randint", shape, fill, generator, layout, low=low, high=high)


@register_function
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    **layout: Unpack[TypedLayout],
) -> Tensor:
    """A random permutation of 0 .. n-1, the same for every layout."""
    if out is not None:
        return give_to(out, randperm(n, generator=generator, **made_for(out, layout)))
    layout["dtype"] = layout.get("dtype") or torch.int64

    def fill(
        shape: Size, offset: Size, size: Size, *, device: torch.device, **draw: object
    ) -> torch.Tensor:
        order: torch.Tensor = pick(random_kernels.randperm, device.type)(n, device=device, **draw)
        return order[offset[0] : offset[0] + size[0]]

    return random_source("randperm", (n,), fill, generator, layout)
