"""Random programs: short lists of op calls that run in torch and in onefold.

A program is data. Drawing one needs no device and no world, so that every process of a launched
world can draw the same ones, and what failed can be read: `print(program)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, seed as seeded, settings, strategies as st

from ..engine.autograd import grad
from ..engine.convert import to_global
from ..engine.inplace import assign_result, setitem_
from ..engine.names import names
from ..engine.placement import Placement
from ..engine.sbp import NdSbp, broadcast, short
from ..engine.tensor import Tensor
from .drawing import BUILDERS, Entry
from .manual_layouts import make_global, make_local
from .program_calls import STEPS, Lib
from .sample_checks import cotangent, difference, value_of
from .strategies import meshes, nd_sbps, nested_ranks, shapes

Values: TypeAlias = "list[torch.Tensor | None]"


@dataclass(frozen=True)
class Input:
    """A leaf of a program: random values, laid out by hand."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    placement: int
    nd_sbp: NdSbp
    high: int = 2  # integers are below it

    def values(self, seed: int) -> torch.Tensor:
        if self.dtype == torch.float64:
            return cotangent(self.shape, self.dtype, seed)
        random = np.random.default_rng(seed)
        drawn = random.integers(0, self.high, self.shape)
        return torch.from_numpy(np.asarray(drawn)).to(self.dtype)


@dataclass(frozen=True)
class CallStep:
    """One op call: a name of `program_calls.STEPS`, positions of its inputs, its attributes."""

    name: str
    inputs: tuple[int, ...]
    attrs: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Program:
    """Leaves and steps; item i makes value i, from values before it."""

    placements: tuple[Any, ...]  # nested lists of ranks
    items: tuple[Input | CallStep, ...]

    def __repr__(self) -> str:
        lines = [f"placement {i}: {ranks}" for i, ranks in enumerate(self.placements)]
        for index, item in enumerate(self.items):
            if isinstance(item, Input):
                word = f"{str(item.dtype)[6:]}{list(item.shape)} {short(item.nd_sbp)}"
                lines.append(f"  x{index} = {word} on placement {item.placement}")
            else:
                words = [f"x{i}" for i in item.inputs] + [repr(attr) for attr in item.attrs]
                lines.append(f"  x{index} = {item.name}({', '.join(words)})")
        return "\n".join(["Program", *lines])


# Drawing.


class _Builder:
    """A program under construction, with what is known of each value."""

    def __init__(
        self, draw: Callable[..., Any], placements: tuple[Any, ...], partial: bool
    ) -> None:
        self.draw = draw
        self.placements = placements
        self.partial = partial
        self.items: list[Input | CallStep] = []
        self.entries: list[Entry] = []

    def input(
        self,
        shape: Sequence[int],
        placement: int,
        dtype: torch.dtype = torch.float64,
        high: int = 2,
    ) -> int:
        """Add a leaf; returns its position."""
        mesh_ndim = np.ndim(self.placements[placement])
        partial = self.partial and dtype != torch.bool
        nd_sbp = self.draw(nd_sbps(tuple(shape), mesh_ndim, partial))
        self.items.append(Input(tuple(shape), dtype, placement, nd_sbp, high))
        self.entries.append(Entry(tuple(shape), dtype, placement, exact=True))
        return len(self.items) - 1

    def step(self, name: str, *inputs: int, attrs: tuple[Any, ...] = ()) -> int:
        """Add a step; returns its position."""
        found = [self.entries[i] for i in inputs]
        results = [torch.empty(entry.shape, dtype=entry.dtype, device="meta") for entry in found]
        result = STEPS[name](TORCH, *results, *attrs)
        exact = name == "to_global" and found[0].exact
        placement = attrs[0] if name == "to_global" else found[0].placement
        self.items.append(CallStep(name, inputs, attrs))
        self.entries.append(Entry(tuple(result.shape), result.dtype, placement, exact))
        return len(self.items) - 1

    def moved(self, index: int, placement: int) -> int:
        """The position of value `index` on a placement, moved there if need be."""
        if self.entries[index].placement == placement:
            return index
        nd_sbp = self.layout(self.entries[index], placement)
        return self.step("to_global", index, attrs=(placement, nd_sbp))

    def layout(self, entry: Entry, placement: int) -> NdSbp:
        partial = self.partial and entry.dtype != torch.bool
        mesh_ndim = np.ndim(self.placements[placement])
        found: NdSbp = self.draw(nd_sbps(entry.shape, mesh_ndim, partial))
        return found

    def pick(self, allowed: Callable[[Entry], bool]) -> int | None:
        """One of the values that are allowed, or None."""
        found = [index for index, entry in enumerate(self.entries) if allowed(entry)]
        return self.draw(st.sampled_from(found)) if found else None


@st.composite
def programs(
    draw: st.DrawFn,
    max_ranks: int = 6,
    max_ndim: int = 2,
    max_steps: int = 8,
    partial: bool = True,
) -> Program:
    """Programs of up to `max_steps` op calls over tensors on one or two random placements.

    Ops are pointwise ones, matrix products, reductions, shape changes, indexing, softmax, layer
    norm, in-place changes and moves to other layouts and placements. Ops with kinks only see
    leaves, whose values have no ties.
    """
    placements = []
    for _ in range(draw(st.integers(1, 2))):
        mesh = draw(meshes(max_ranks, max_ndim))
        ranks = draw(st.permutations(range(max_ranks)))[: prod(mesh)]
        placements.append(nested_ranks(ranks, mesh))
    builder = _Builder(draw, tuple(placements), partial)
    builder.input(draw(shapes(min_ndim=1, max_ndim=3)), 0)
    for _ in range(draw(st.integers(1, max_steps))):
        draw(st.sampled_from(BUILDERS))(builder)
    return Program(builder.placements, tuple(builder.items))


def draw_programs(count: int, seed: int = 0, **options: Any) -> list[Program]:
    """The same `count` programs on every process that passes the same arguments."""
    found: list[Program] = []

    @seeded(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(**options))
    def collect(program: Program) -> None:
        found.append(program)

    collect()
    return found[:count]


# Running.


class _Torch(Lib):
    """The ops of torch: what decides."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        for place in (torch, torch.nn.functional):
            found: Callable[..., Any] | None = getattr(place, name, None)
            if found is not None:
                return found
        raise AttributeError(f"torch has no function {name}")

    embedding = staticmethod(torch.nn.functional.embedding)  # torch.embedding takes them swapped

    def to_global(self, x: Any, placement: int, nd_sbp: NdSbp) -> Any:
        return x

    def change(self, x: Any, name: str, *args: Any) -> None:
        getattr(x, name + "_")(*args)

    def assign(self, x: Any, index: Any, value: Any) -> None:
        x[index] = value


class _Onefold(Lib):
    """The ops of onefold on a program's placements."""

    def __init__(self, placements: Sequence[Placement]) -> None:
        self.placements = placements

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(names, name)
        return found

    def to_global(self, x: Any, placement: int, nd_sbp: NdSbp) -> Any:
        if x.is_local:
            return x
        return to_global(x, self.placements[placement], nd_sbp)

    def change(self, x: Any, name: str, *args: Any) -> None:
        assign_result(x, name, *args)

    def assign(self, x: Any, index: Any, value: Any) -> None:
        setitem_(x, index, value)


TORCH = _Torch()


def run_torch(program: Program, seed: int = 0) -> tuple[Values, Values]:
    """Every value of the program in torch on one device, and the gradients of its leaves."""

    def leaf(item: Input, values: torch.Tensor) -> torch.Tensor:
        return values

    pool, leaves = _run(program, TORCH, leaf, seed)
    ends, indices = _ends(program, pool)
    seeds = [cotangent(x.shape, x.dtype, seed + i) for i, x in zip(indices, ends, strict=True)]
    gradients: Sequence[Any] = [None] * len(leaves)
    if ends:
        gradients = torch.autograd.grad(ends, leaves, seeds, allow_unused=True)
    return [x.detach() for x in pool], list(gradients)


def run_onefold(program: Program, seed: int = 0, local: bool = False) -> tuple[Values, Values]:
    """Every value of the program in onefold, and the gradients of its leaves.

    Values are read after the last step, so that an in-place change which reached another tensor
    is seen. With `local` all tensors are local. Collective in a launched world.
    """
    pool, gradients = onefold_tensors(program, seed, local)
    return (
        [value_of(x) for x in pool],
        [None if gradient is None else value_of(gradient) for gradient in gradients],
    )


def onefold_tensors(
    program: Program, seed: int = 0, local: bool = False
) -> tuple[list[Tensor], list[Tensor | None]]:
    """The tensors whose values `run_onefold` gives; can be captured."""
    placements = [Placement("cpu", ranks) for ranks in program.placements]

    def leaf(item: Input, values: torch.Tensor) -> Tensor:
        if local:
            return make_local(values)
        return make_global(values, placements[item.placement], item.nd_sbp, seed)

    pool, leaves = _run(program, _Onefold(placements), leaf, seed)
    ends, indices = _ends(program, pool)
    seeds = [
        _like(cotangent(x.shape, x.dtype, seed + i), x) for i, x in zip(indices, ends, strict=True)
    ]
    if not ends:
        return pool, [None] * len(leaves)
    return pool, list(grad(ends, leaves, seeds, allow_unused=True))


def _run(
    program: Program, lib: Lib, leaf: Callable[[Input, torch.Tensor], Any], seed: int
) -> tuple[list[Any], list[Any]]:
    pool: list[Any] = []
    leaves = []
    for index, item in enumerate(program.items):
        if isinstance(item, Input):
            x = leaf(item, item.values(1000 * seed + index))
            if item.dtype.is_floating_point:
                leaves.append(x.requires_grad_())
            pool.append(x)
        else:
            pool.append(STEPS[item.name](lib, *[pool[i] for i in item.inputs], *item.attrs))
    return pool, leaves


def _ends(program: Program, pool: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """The values of which gradients are taken: what the steps made. Also their positions."""
    indices = [
        index
        for index, (item, x) in enumerate(zip(program.items, pool, strict=True))
        if isinstance(item, CallStep) and x.requires_grad
    ]
    return [pool[index] for index in indices], indices


def _like(value: torch.Tensor, other: Tensor) -> Tensor:
    if other.is_local:
        return make_local(value)
    return make_global(value, other.placement, (broadcast,) * other.placement.ndim)


def check_program(program: Program, seed: int = 0, local: bool = False, tol: float = 1e-10) -> None:
    """Check that a program means the same in onefold and in torch on one device.

    Raises AssertionError naming the first value or gradient that differs, and the program.
    """
    wanted, wanted_grads = run_torch(program, seed)
    found, found_grads = run_onefold(program, seed, local)
    leaves = [
        index
        for index, item in enumerate(program.items)
        if isinstance(item, Input) and item.dtype.is_floating_point
    ]
    for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
        _check(f"value x{index}", one, other, tol, program)
    for index, one, other in zip(leaves, found_grads, wanted_grads, strict=True):
        _check(f"gradient of x{index}", one, other, tol, program)


def _check(
    what: str,
    found: torch.Tensor | None,
    wanted: torch.Tensor | None,
    tol: float,
    program: Program,
) -> None:
    text = difference(found, wanted, tol)
    if text:
        raise AssertionError(f"{what} {text}\n{program!r}")
