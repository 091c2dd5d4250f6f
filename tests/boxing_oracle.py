"""The oracle of boxing: shards made and read by nested `tensor_split`, and bytes by element.

Nothing here uses boxes or plans: layouts are read from the meaning of split, broadcast and
partial alone, one axis of the mesh after the other.
"""

from itertools import product
from math import prod

import torch

from onefold.engine.boxing import plan, run
from onefold.engine.meta import Meta
from onefold.engine.placement import Placement
from onefold.engine.sbp import NdSbp, parse

JOIN = {"P": torch.add, "PMAX": torch.maximum, "PMIN": torch.minimum}


def metas(shape, dtype, ranks, sbps) -> Meta:
    """A meta from plain values: `metas((4, 4), torch.int64, [0, 1], "S0")`."""
    nd_sbp = parse(sbps) if isinstance(sbps, str) else sbps
    return Meta.of(shape, dtype, Placement("cpu", ranks), nd_sbp)


def all_nd_sbps(kinds: str, ndim: int) -> list[NdSbp]:
    """Every nd_sbp of `ndim` axes with these kinds, as in "S0 B P"."""
    return list(product(parse(kinds), repeat=ndim))


def shards_of(
    meta: Meta, whole: torch.Tensor, seed: int = 0, rough: bool = False
) -> dict[int, torch.Tensor]:
    """Shards by rank that stand for `whole`; the addends of partials are random integers.

    `rough`: they are no integers, so that floating sums depend on the order of the addends.
    """
    generator = torch.Generator().manual_seed(seed)
    placement = meta.placement

    def lay(axis, value):
        """Shards of the sub-mesh from `axis` on, in row-major order."""
        if axis == placement.ndim:
            return [value]
        sbp, parts = meta.nd_sbp[axis], placement.shape[axis]
        if sbp.is_broadcast:
            return lay(axis + 1, value) * parts
        if sbp.is_split:
            pieces = list(torch.tensor_split(value, parts, dim=sbp.dim))
        else:
            pieces = addends(value, parts, sbp.kind, generator, rough)
        return [shard for piece in pieces for shard in lay(axis + 1, piece)]

    return {
        rank: shard.clone() for rank, shard in zip(placement.flat_ranks, lay(0, whole), strict=True)
    }


def addends(value, count, kind, generator, rough):
    """`count` tensors whose sum, maximum or minimum is `value`."""

    def noise(low):
        drawn = torch.randint(low, 9, value.shape, generator=generator).to(value.dtype)
        return drawn / 7 if rough and drawn.is_floating_point() else drawn

    if kind == "P":
        others = [noise(-9) for _ in range(count - 1)]
        return [*others, value - sum(others)] if others else [value]
    out = [value - noise(0) if kind == "PMAX" else value + noise(0) for _ in range(count)]
    out[int(torch.randint(0, count, (), generator=generator))] = value
    return out


def value_of(meta: Meta, shards: dict[int, torch.Tensor]) -> torch.Tensor:
    """What shards stand for. AssertionError when replicas differ or a shard's shape is wrong."""
    placement = meta.placement
    expected = shards_of(meta, torch.zeros(meta.shape))
    for rank, shard in shards.items():
        assert shard.shape == expected[rank].shape, f"rank {rank}: shape {tuple(shard.shape)}"
        assert shard.dtype == meta.dtype, f"rank {rank}: dtype {shard.dtype}"

    def read(axis, ranks):
        if axis == placement.ndim:
            return shards[ranks[0]]
        sbp, parts = meta.nd_sbp[axis], placement.shape[axis]
        size = len(ranks) // parts
        values = [read(axis + 1, ranks[i * size : (i + 1) * size]) for i in range(parts)]
        if sbp.is_broadcast:
            for value in values[1:]:
                assert torch.equal(value, values[0]), f"replicas differ along axis {axis}"
            return values[0]
        if sbp.is_split:
            return torch.cat(values, dim=sbp.dim)
        out = values[0]
        for value in values[1:]:
            out = JOIN[sbp.kind](out, value)
        return out

    return read(0, placement.flat_ranks)


def whole_of(meta: Meta) -> torch.Tensor:
    """Distinct small values in the meta's shape and dtype."""
    return (torch.arange(meta.numel).reshape(meta.shape) * 3 - 7).to(meta.dtype)


def carry(src: Meta, dst: Meta, whole: torch.Tensor) -> dict[int, torch.Tensor]:
    """The shards after boxing `whole` from `src` to `dst` in a virtual world."""
    given = shards_of(src, whole)
    made = run(plan(src, dst), tuple(given[rank] for rank in src.placement.flat_ranks))
    return dict(zip(dst.placement.flat_ranks, made, strict=True))


def check(src: Meta, dst: Meta) -> None:
    """AssertionError unless boxing from `src` to `dst` keeps the value."""
    whole = whole_of(src)
    made = carry(src, dst, whole)
    assert torch.equal(value_of(dst, made), whole), f"{src} -> {dst}\n{plan(src, dst)}"


def least_bytes(src: Meta, dst: Meta) -> int:
    """The fewest bytes that all ranks together must receive, counted element by element.

    An element that is not partial goes to every rank that needs it and does not hold it. One with
    `a` addends and `t` takers needs (a - 1) messages to be summed and t to be handed out, one
    less where a taker holds an addend. The target must have no partial that the source has not.
    """
    joined = [
        size for sbp, size in zip(src.nd_sbp, src.placement.shape, strict=True) if sbp.is_partial
    ]
    count = prod(joined)
    held, needed = _elements(src), _elements(dst)
    total = 0
    for element in range(src.numel):
        takers = {rank for rank, elements in needed.items() if element in elements}
        holders = {rank for rank, elements in held.items() if element in elements}
        if count == 1:
            total += len(takers - holders)
        else:
            total += count - 1 + len(takers) - bool(takers & holders)
    return total * src.dtype.itemsize


def _elements(meta: Meta) -> dict[int, set[int]]:
    placement = meta.placement
    index = torch.arange(meta.numel).reshape(meta.shape)

    def lay(axis, value):
        if axis == placement.ndim:
            return [set(value.reshape(-1).tolist())]
        sbp, parts = meta.nd_sbp[axis], placement.shape[axis]
        pieces = torch.tensor_split(value, parts, sbp.dim) if sbp.is_split else [value] * parts
        return [shard for piece in pieces for shard in lay(axis + 1, piece)]

    return dict(zip(placement.flat_ranks, lay(0, index), strict=True))
