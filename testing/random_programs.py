"""Random programs: short lists of op calls that run in torch and in onefold.

A program is data. Drawing one needs no device and no world, so that every process of a launched
world can draw the same ones, and what failed can be read: `print(program)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias, TypeVar

import torch
from hypothesis import HealthCheck, Phase, given, seed as seeded, settings, strategies as st
from torch import autograd

from ..engine.autograd import grad
from ..engine.convert import to_global
from ..engine.inplace import assign_result, setitem_
from ..engine.names import Function, names
from ..engine.placement import Placement, Ranks
from ..engine.sbp import NdSbp, short
from ..engine.tensor import Tensor
from .drawing import STEP_KINDS
from .manual_layouts import like, make_global, make_local
from .program_builder import Builder, CallStep, Input
from .program_calls import STEPS, TORCH, Index, Lib
from .sample_checks import difference, random_gradients, value_of
from .strategies import meshes, nested_ranks, shapes

T = TypeVar("T", torch.Tensor, Tensor)
Values: TypeAlias = "list[torch.Tensor | None]"


@dataclass(frozen=True)
class Program:
    """Leaves and steps; item i makes value i, from values before it."""

    placements: tuple[Ranks, ...]  # nested lists of ranks
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


@st.composite
def programs(
    draw: st.DrawFn, max_ranks: int = 6, max_ndim: int = 2, max_steps: int = 8, partial: bool = True
) -> Program:
    """Programs of up to `max_steps` op calls over tensors on one or two random placements.

    Ops are pointwise ones, matrix products, reductions, shape changes, indexing, softmax, layer
    norm, in-place changes and moves to other layouts and placements. Ops with kinks only see
    leaves, whose values have no ties.
    """
    placements: list[Ranks] = []
    for _ in range(draw(st.integers(1, 2))):
        mesh = draw(meshes(max_ranks, max_ndim))
        ranks = draw(st.permutations(range(max_ranks)))[: prod(mesh)]
        placements.append(nested_ranks(ranks, mesh))
    builder = Builder(draw, tuple(placements), partial)
    builder.input(draw(shapes(min_ndim=1, max_ndim=3)), 0)
    for _ in range(draw(st.integers(1, max_steps))):
        draw(st.sampled_from(STEP_KINDS))(builder)
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


class _Onefold(Lib[Tensor]):
    """The ops of onefold on a program's placements."""

    def __init__(self, placements: Sequence[Placement]) -> None:
        self.placements = placements

    def __getattr__(self, name: str) -> Function:
        function: Function = getattr(names, name)
        return function

    def to_global(self, x: Tensor, placement: int, nd_sbp: NdSbp) -> Tensor:
        return x if x.is_local else to_global(x, self.placements[placement], nd_sbp)

    def change(self, x: Tensor, name: str, *args: Tensor) -> None:
        assign_result(x, name, *args)

    def assign(self, x: Tensor, index: Index, value: float) -> None:
        setitem_(x, index, value)


def run_torch(program: Program, seed: int = 0) -> tuple[Values, Values]:
    """Every value of the program in torch on one device, and the gradients of its leaves."""
    pool, gradients = _run(
        program, TORCH, lambda item, values: values, lambda value, x: value, autograd.grad, seed
    )
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
) -> tuple[list[Tensor], Sequence[Tensor | None]]:
    """The tensors whose values `run_onefold` gives; can be captured."""
    placements = [Placement("cpu", ranks) for ranks in program.placements]

    def leaf(item: Input, values: torch.Tensor) -> Tensor:
        if local:
            return make_local(values)
        return make_global(values, placements[item.placement], item.nd_sbp, seed)

    return _run(program, _Onefold(placements), leaf, like, grad, seed)


def _run(
    program: Program,
    lib: Lib[T],
    leaf: Callable[[Input, torch.Tensor], T],
    as_seed: Callable[[torch.Tensor, T], T],
    gradients: Callable[..., Sequence[T | None]],
    seed: int,
) -> tuple[list[T], Sequence[T | None]]:
    """Every value, and the gradients of the leaves for random ones of what the steps made."""
    pool: list[T] = []
    leaves: list[T] = []
    made: list[int] = []
    for index, item in enumerate(program.items):
        if isinstance(item, Input):
            x = leaf(item, item.values(1000 * seed + index))
            if item.dtype.is_floating_point:
                leaves.append(x.requires_grad_())
            pool.append(x)
        else:
            pool.append(STEPS[item.name](lib, *[pool[i] for i in item.inputs], *item.attrs))
            made.append(index)
    ends: dict[int, T] = {index: pool[index] for index in made if pool[index].requires_grad}
    return pool, random_gradients(ends, leaves, as_seed, gradients, seed)


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
    what: str, found: torch.Tensor | None, wanted: torch.Tensor | None, tol: float, program: Program
) -> None:
    text = difference(found, wanted, tol)
    if text:
        raise AssertionError(f"{what} {text}\n{program!r}")
