"""Layouts without the engine: splits a value into shards and combines shards again.

These are the oracle of the tests, so they use numpy's own balanced split and no code of boxing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch

from ..engine.meta import Meta
from ..engine.placement import Placement
from ..engine.sbp import NdSbp, Sbp, broadcast
from ..engine.tensor import Tensor, from_shards

_JOIN: dict[str, Callable[..., torch.Tensor]] = {
    "P": torch.add,
    "PMAX": torch.maximum,
    "PMIN": torch.minimum,
}


@lru_cache(maxsize=1024)
def sizes(size: int, parts: int) -> tuple[int, ...]:
    """The sizes of a balanced split, as numpy makes it."""
    return tuple(len(part) for part in np.array_split(np.arange(size), parts))


def cut(
    value: torch.Tensor, sbp: Sbp, parts: int, random: np.random.Generator
) -> list[torch.Tensor]:
    """The shards of `value` along one axis of `parts` ranks.

    Partial sums get random addends; partial maxima (minima) hold the value on a random rank of
    each element and something smaller (larger) on the others.
    """
    if sbp.is_broadcast:
        return [value] * parts
    if sbp.is_split:
        return [
            part.contiguous()
            for part in value.split(list(sizes(value.shape[sbp.dim], parts)), sbp.dim)
        ]
    if sbp.kind == "P":
        return _addends(value, parts, random)
    return _hidden(value, parts, random, 1 if sbp.kind == "PMIN" else -1)


def join(shards: Sequence[torch.Tensor], sbp: Sbp, tol: float = 0.0) -> torch.Tensor | None:
    """The value of which these are the shards along one axis; None when they are not of one.

    Broadcast shards must be equal up to `tol` or the rounding of their dtype.
    """
    first = shards[0]
    if sbp.is_split:
        others = [(*shard.shape[: sbp.dim], *shard.shape[sbp.dim + 1 :]) for shard in shards]
        if first.ndim <= sbp.dim or any(other != others[0] for other in others):
            return None
        total = sum(shard.shape[sbp.dim] for shard in shards)
        if tuple(shard.shape[sbp.dim] for shard in shards) != sizes(total, len(shards)):
            return None
        return torch.cat(list(shards), sbp.dim)
    if any(shard.shape != first.shape for shard in shards):
        return None
    if sbp.is_broadcast:
        return first if all(close(shard, first, tol) for shard in shards) else None
    if first.dtype.is_complex and sbp.kind != "P":
        return None
    joined = first
    for shard in shards[1:]:
        joined = _JOIN[sbp.kind](joined, shard)
    return joined


def close(found: torch.Tensor, wanted: torch.Tensor, tol: float = 0.0) -> bool:
    """Whether two tensors agree in shape, dtype and value, up to `tol` or the dtype's rounding."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    if found is wanted:
        return True
    if is_tiny(wanted):
        found, wanted = found.float(), wanted.float()
    if torch.equal(found, wanted):  # as most are, in a twentieth of the time
        return True
    if not is_floating(wanted):
        return False
    scale = max(tol, rounding(wanted.dtype))
    return torch.allclose(found, wanted, rtol=scale, atol=scale, equal_nan=True)


def rounding(dtype: torch.dtype) -> float:
    """The relative difference that reordered arithmetic of this dtype may show."""
    if dtype.itemsize == 1:
        return 0.0  # there is no arithmetic of float8
    return {torch.float64: 1e-10, torch.complex128: 1e-10}.get(dtype, 200 * torch.finfo(dtype).eps)


def is_floating(value: torch.Tensor | Tensor) -> bool:
    """Whether the elements are floating point or complex numbers."""
    return value.dtype.is_floating_point or value.dtype.is_complex


def is_tiny(value: torch.Tensor) -> bool:
    """Whether the elements are float8, which torch neither adds nor compares."""
    return value.dtype.is_floating_point and value.dtype.itemsize == 1


def scatter(
    value: torch.Tensor, placement: Placement, nd_sbp: NdSbp, seed: int = 0
) -> dict[int, torch.Tensor]:
    """The shards of `value` by position of the flattened mesh, cut axis by axis.

    Ranks that differ only along broadcast axes hold the same shard, addends included.
    """
    random = np.random.default_rng(seed)
    shards: dict[tuple[int, ...], torch.Tensor] = {(): value}
    for sbp, parts in zip(nd_sbp, placement.shape, strict=True):
        shards = {
            (*coordinate, index): part
            for coordinate, shard in shards.items()
            for index, part in enumerate(
                [shard] if sbp.is_broadcast else cut(shard, sbp, parts, random)
            )
        }
    return {
        position: shards[_without_replicas(placement, nd_sbp, position)]
        for position in range(placement.num_ranks)
    }


def gather(
    shards: Sequence[torch.Tensor], placement: Placement, nd_sbp: NdSbp, tol: float = 0.0
) -> torch.Tensor | None:
    """The value of which these are all shards, in mesh order; None when they are not of one."""
    distinct: dict[tuple[int, ...], torch.Tensor] = {}
    for position, shard in enumerate(shards):
        first = distinct.setdefault(_without_replicas(placement, nd_sbp, position), shard)
        if not close(shard, first, tol):
            return None
    level = list(distinct.values())
    for sbp, parts in zip(reversed(nd_sbp), reversed(placement.shape), strict=True):
        if sbp.is_broadcast:
            continue
        joined = [join(level[i : i + parts], sbp, tol) for i in range(0, len(level), parts)]
        level = [value for value in joined if value is not None]
        if len(level) != len(joined):
            return None
    return level[0]


def _without_replicas(placement: Placement, nd_sbp: NdSbp, position: int) -> tuple[int, ...]:
    """The mesh coordinate with 0 on the broadcast axes: equal for ranks that hold the same."""
    return tuple(
        0 if sbp.is_broadcast else index
        for sbp, index in zip(nd_sbp, placement.coordinate(position), strict=True)
    )


def make_local(value: torch.Tensor) -> Tensor:
    """A local tensor on the value's device, sharing its memory."""
    return from_shards((value,), Meta.of(value.shape, value.dtype, device=value.device))


def make_global(value: torch.Tensor, placement: Placement, nd_sbp: NdSbp, seed: int = 0) -> Tensor:
    """A global tensor laid out by hand: this process keeps the shards of the ranks it owns.

    Every process must pass the same value and seed. The value lies on the host.
    """
    shards = scatter(value, placement, nd_sbp, seed)
    meta = Meta.of(value.shape, value.dtype, placement, nd_sbp)
    owned = [(shards[at], placement.device(placement.flat_ranks[at])) for at in placement.owned]
    return from_shards(tuple(shard.to(device, copy=True) for shard, device in owned), meta)


def like(value: torch.Tensor, other: Tensor) -> Tensor:
    """`value` as a tensor that is local or replicated on a placement, as `other` is."""
    if other.is_local:
        return make_local(value)
    return make_global(value, other.placement, (broadcast,) * other.placement.ndim)


def _addends(value: torch.Tensor, parts: int, random: np.random.Generator) -> list[torch.Tensor]:
    if value.dtype == torch.bool:
        raise ValueError("a bool value has no partial sum")
    addends = []
    rest = value
    for _ in range(parts - 1):
        noise = torch.as_tensor(random.integers(-12, 12, tuple(value.shape)) * 2 + 1)
        # Of floating numbers few bits, so that most sums are exact.
        addend = (noise / 8 if is_floating(value) else noise).to(value.dtype)
        addends.append(addend)
        rest = rest - addend
    return [*addends, rest]


def _hidden(
    value: torch.Tensor, parts: int, random: np.random.Generator, sign: int
) -> list[torch.Tensor]:
    holder = torch.as_tensor(random.integers(0, parts, tuple(value.shape)))
    if value.dtype == torch.bool:
        other = torch.full_like(value, sign > 0)
    else:
        distance = torch.as_tensor(random.integers(1, 4, tuple(value.shape)))
        other = value + sign * distance.to(value.dtype)
    return [torch.where(holder == index, value, other) for index in range(parts)]
