"""Random creation. Numbers depend on the logical index, not on the layout."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeAlias, Unpack, cast

import torch

from ...distributed import provenance
from ...errors import OnefoldRuntimeError, OnefoldTypeError
from ...kernels import random_ref as random_kernels
from ...kernels.select import pick
from ..argument_types import Dims, Layout, SizedLayout, TypedLayout
from ..dispatch_plan import cleared_with_plans
from ..generator import Generator, default_generator
from ..meta import Box, Meta, Shape
from ..names import names, register_function
from ..op import Kernel, around
from ..out_tensors import give_to, made_for
from ..tensor import Tensor, from_shards
from ..views import unlink
from .creation import Size, is_plain, make, plain_meta, read_size


def random_source(
    what: str,
    shape: Size,
    fill: Callable[..., torch.Tensor],
    generator: Generator | None,
    layout: TypedLayout,
    **options: object,
) -> Tensor:
    """A random tensor: `fill` is a box-filling kernel of kernels/random, with its options."""
    source = _source(what, generator)
    dtype = layout.pop("dtype", None) or torch.get_default_dtype()
    placed: Layout = layout
    shape = tuple(shape)
    if dtype.is_complex and fill in (random_kernels.uniform, random_kernels.normal):
        return _complex_source(what, shape, fill, source, dtype, placed, options)
    plain = plain_meta(shape, dtype, layout)
    if plain is not None:
        settings = _settings(options) if options else ()
        return _drawn(source, _local_draw(fill, plain, *settings))
    draw = source.draw()

    def maker(box: Box, device: torch.device | None) -> torch.Tensor:
        drawn = {"seed": draw.seed, "call": draw.call, "dtype": dtype, "device": device}
        kernel = pick(fill, "cpu" if device is None else device.type)
        part: torch.Tensor = kernel(shape, *box, **drawn, **options)
        return part

    if provenance.state.on:
        vars(maker)["values"] = draw.seed, draw.call
    try:
        return make(what, shape, dtype, maker, is_random=True, **placed)
    except Exception:
        source.set_state((draw.seed, draw.call))  # a bad call changes nothing
        raise


def _complex_source(
    what: str,
    shape: Shape,
    fill: Callable[..., torch.Tensor],
    generator: Generator,
    dtype: torch.dtype,
    layout: Layout,
    options: dict[str, object],
) -> Tensor:
    """A random complex tensor, of real and imaginary parts that are drawn together.

    As in torch, each has the given mean, and half of the variance of normal numbers.
    """
    requires_grad = layout.pop("requires_grad", False)
    if fill is random_kernels.normal:
        options["std"] = cast("float", options.get("std", 1.0)) * 0.5**0.5
    drawn: TypedLayout = {**layout, "dtype": dtype.to_real()}
    parts = random_source(what, (*shape, 2), fill, generator, drawn, **options)
    made = unlink(names.view_as_complex(parts))
    return made.requires_grad_() if requires_grad else made


def random_like(
    what: str,
    x: Tensor,
    fill: Callable[..., torch.Tensor],
    generator: Generator | None,
    layout: Callable[[Tensor, TypedLayout], TypedLayout],
    dtype: torch.dtype | None = None,
    **options: object,
) -> Tensor:
    """`random_source` in the shape of `x`; `layout` gives its layout where `x` is no plain one."""
    meta = x.meta
    if is_plain(meta) and not (dtype or meta.dtype).is_complex:
        if dtype is not None and dtype is not meta.dtype:
            meta = meta.like(dtype=dtype)
        return _drawn(_source(what, generator), _local_draw(fill, meta, *_settings(options)))
    found = layout(x, {"dtype": dtype or meta.dtype})
    return random_source(what, meta.shape, fill, generator, found, **options)


def _source(what: str, generator: object) -> Generator:
    """The generator that is drawn from. Raises OnefoldTypeError for what is none."""
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise OnefoldTypeError(
            f"{what}: generator must be a flow.Generator, but got {generator!r}; make one with "
            "flow.Generator().manual_seed(seed)"
        )
    return generator


class LocalDraw(NamedTuple):
    """A local random tensor: its meta, and the function that fills it, given a seed and call id."""

    meta: Meta
    fill: Callable[[int, int, torch.device | None], torch.Tensor]


# The name, type and value of an option; zeros differ by their texts.
Setting: TypeAlias = tuple[str, type, object, str]


def _settings(options: dict[str, object]) -> list[Setting]:
    return [(name, type(o), o, "" if o else repr(o)) for name, o in options.items()]


@cleared_with_plans
@lru_cache(maxsize=4096)
def _local_draw(reference: Kernel, meta: Meta, *settings: Setting) -> LocalDraw:
    kernel = pick(reference, meta.device_type)
    shape, dtype, device = tuple(meta.shape), meta.dtype, meta.device
    options = {"dtype": dtype, **{name: value for name, _, value, _ in settings}}
    whole = getattr(reference, "whole", None) if kernel is reference else None
    if whole is not None:
        return LocalDraw(meta, whole(shape, device, **options))
    start = (0,) * len(shape)

    def fill(seed: int, call: int, device: torch.device | None) -> torch.Tensor:
        drawn = {"seed": seed, "call": call, "device": device}
        made: torch.Tensor = kernel(shape, start, shape, **drawn, **options)
        return made

    return LocalDraw(meta, around(kernel, fill))


def _drawn(source: Generator, local: LocalDraw) -> Tensor:
    draw = source.draw()
    try:
        return from_shards((local.fill(draw.seed, draw.call, local.meta.device),), local.meta)
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
    return random_source("randperm", (n,), _permutation, generator, layout)


def _permutation(
    shape: Size,
    offset: Size,
    size: Size,
    *,
    seed: int,
    call: int,
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    """A part of a permutation. Every rank sorts all of it."""
    kernel = pick(random_kernels.randperm, device.type)
    order = kernel(shape[0], seed=seed, call=call, dtype=dtype, device=device)
    return order[offset[0] : offset[0] + size[0]]
