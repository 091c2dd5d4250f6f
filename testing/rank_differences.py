"""On which ranks a tensor differs from the value that it should have, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from ..distributed.collectives import gather_objects
from ..distributed.world import world
from ..engine.meta import slices_of
from ..engine.tensor import Tensor
from ..engine.values import whole
from .manual_layouts import close, gather

Distances: TypeAlias = dict[int, float]  # by rank


@dataclass(frozen=True)
class Difference:
    """How a value differs, and on which ranks; without ranks it is the same on all."""

    what: str
    ranks: tuple[int, ...] = ()

    def __str__(self) -> str:
        if not self.ranks:
            return self.what
        ranks = ", ".join(map(str, self.ranks))
        return f"{self.what} on rank{'s' * (len(self.ranks) > 1)} {ranks}"


def different(
    pairs: Sequence[tuple[Tensor | None, torch.Tensor | None]], tol: float
) -> list[Difference | None]:
    """For each tensor how it differs from its value, or None; None stands for zeros.

    The same on every process. Where shards are parts of the value each is compared with its part;
    partial sums are added first, and then no rank is named.
    """
    found = [_different(x, value, tol) for x, value in pairs]
    here = world()
    if not here.launched:
        return [_explained(each) for each in found]
    every = gather_objects(found, tuple(range(here.size)))
    return [_explained(_merged(parts)) for parts in zip(*every, strict=True)]


def _different(x: Tensor | None, value: torch.Tensor | None, tol: float) -> str | Distances:
    if x is None or value is None:
        if x is None and value is not None and bool((value != 0).any()):
            return "is missing"
        return "should not be there" if x is not None and bool((whole(x) != 0).any()) else {}
    if x.shape != value.shape:
        return f"has shape {tuple(x.shape)} instead of {tuple(value.shape)}"
    if x.dtype != value.dtype:
        return f"has dtype {x.dtype} instead of {value.dtype}"
    meta = x.meta
    if meta.placement is None:
        distance = _distance(x.shards[0], value, tol)
        return f"differs by up to {distance:.3g}" if distance else {}
    if any(sbp.is_partial for sbp in meta.nd_sbp):
        distance = _distance(_sum(x), value, tol)
        return f"differs by up to {distance:.3g}" if distance else {}
    distances = {}
    for position, shard in zip(meta.placement.owned, x.shards, strict=True):
        part = value[slices_of(meta.box(position))]
        if distance := _distance(shard, part, tol):
            distances[meta.placement.flat_ranks[position]] = distance
    return distances


def _sum(x: Tensor) -> torch.Tensor:
    """The value of addends; one of NaN where what must be equal is not."""
    if world().launched:
        return whole(x)
    total = gather(x.shards, x.placement, x.meta.nd_sbp, tol=1e-3)
    if total is not None:
        return total
    return torch.full(x.shape, float("nan"), dtype=torch.float64)


def _distance(shard: torch.Tensor, part: torch.Tensor, tol: float) -> float:
    """The largest difference; 0 when they are close."""
    shard, part = shard.detach().cpu(), part.cpu()
    if close(shard, part, tol):
        return 0.0
    if shard.shape != part.shape:
        return float("inf")
    wide = torch.complex128 if part.is_complex() else torch.float64
    distance = (shard.to(wide) - part.to(wide)).abs().nan_to_num(float("inf"))
    return float(distance.max())


def _merged(parts: Sequence[str | Distances]) -> str | Distances:
    """What the processes found, each on its own ranks."""
    texts = [part for part in parts if isinstance(part, str)]
    if texts:
        return texts[0]
    return {rank: size for part in parts if isinstance(part, dict) for rank, size in part.items()}


def _explained(found: str | Distances) -> Difference | None:
    if isinstance(found, str):
        return Difference(found)
    if not found:
        return None
    return Difference(f"differs by up to {max(found.values()):.3g}", tuple(sorted(found)))
