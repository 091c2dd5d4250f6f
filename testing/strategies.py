"""Hypothesis strategies for shapes, placements and layouts."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ..engine.placement import Placement, Ranks
from ..engine.sbp import NdSbp, broadcast, partial_sum, split


def shapes(
    min_ndim: int = 0, max_ndim: int = 4, min_size: int = 0, max_size: int = 7
) -> SearchStrategy[tuple[int, ...]]:
    """Shapes of tensors, uneven and empty ones among them."""
    # Empty dims are worth a test, but make most of what follows empty too: one in eight or so.
    size = st.sampled_from(
        [*range(max(min_size, 1), max_size + 1), *([0] if min_size == 0 else [])]
    )
    return st.lists(size, min_size=min_ndim, max_size=max_ndim).map(tuple)


def meshes(max_ranks: int = 6, max_ndim: int = 2) -> SearchStrategy[tuple[int, ...]]:
    """Shapes of placements with at most `max_ranks` ranks."""
    found: list[tuple[int, ...]] = [()]
    for _ in range(max_ndim):
        found += [
            (*mesh, parts)
            for mesh in found
            for parts in range(1, max_ranks + 1)
            if prod(mesh) * parts <= max_ranks and (*mesh, parts) not in found
        ]
    return st.sampled_from([mesh for mesh in found if mesh])


@st.composite
def placements(
    draw: st.DrawFn, max_ranks: int = 6, max_ndim: int = 2, device_type: str = "cpu"
) -> Placement:
    """Placements on ranks below `max_ranks`, in any order, with up to `max_ndim` axes.

    In a launched world `max_ranks` must be at most its size.
    """
    mesh = draw(meshes(max_ranks, max_ndim))
    ranks = draw(st.permutations(range(max_ranks)))[: prod(mesh)]
    return Placement(device_type, nested_ranks(ranks, mesh))


@st.composite
def nd_sbps(
    draw: st.DrawFn, shape: Sequence[int], mesh_ndim: int = 1, partial: bool = True
) -> NdSbp:
    """Layouts of a tensor of this shape on a mesh of `mesh_ndim` axes."""
    choices = [*map(split, range(len(shape))), broadcast, *([partial_sum] if partial else [])]
    return tuple(draw(st.sampled_from(choices)) for _ in range(mesh_ndim))


def nested_ranks(ranks: Sequence[int], mesh: Sequence[int]) -> Ranks:
    """Ranks in row-major order as the nested lists of a mesh."""
    nested: Ranks = np.reshape(ranks, mesh).tolist()
    return nested
