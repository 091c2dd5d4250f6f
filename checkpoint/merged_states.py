"""States that differ from process to process, as those of pipeline stages do, as one of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import torch

from ..distributed.collectives import gather_objects
from ..distributed.json_values import encode, to_text
from ..distributed.world import world
from ..engine.meta import Meta
from ..engine.placement import Placement
from ..engine.sbp import NdSbp, broadcast, partial_sum, split
from ..engine.tensor import Tensor, from_shards
from ..errors import OnefoldError, RankMismatch
from .live_state import with_states

Path: TypeAlias = tuple[Any, ...]
# A tensor: shape, dtype, type of the device; and ranks and layout, if it is global. Or a value.
Leaf: TypeAlias = tuple[str, Any]

_SBPS = {"B": broadcast, "P": partial_sum}


def merged(state: dict[str, Any]) -> dict[str, Any]:
    """A state that holds what any process has, the same on all. Collective in a launched world.

    What all of them have stays as it is. A tensor that only some have becomes a global one: a local
    one on the first rank that has it. Raises RankMismatch for numbers, strings and lists that
    differ.
    """
    here = world()
    if not here.launched:
        return state
    plain = {key: with_states(value) for key, value in state.items()}
    own = dict(_leaves(plain, ()))
    leaves = [(list(path), _described(leaf)) for path, leaf in own.items()]
    everywhere = gather_objects(leaves, tuple(range(here.size)))
    of_paths: dict[Path, dict[int, Leaf]] = {}  # the leaves of each path by rank
    for rank, each in enumerate(everywhere):
        for keys, leaf in each:
            of_paths.setdefault(tuple(keys), {})[rank] = tuple(leaf)
    dicts = {path[:size] for path in of_paths for size in range(len(path))}
    made: dict[str, Any] = {}
    for path, found in of_paths.items():
        if path in dicts:  # of other ranks, which have something in it
            _check_empty(path, found)
            continue
        _check(path, found, here.size)
        _place(made, path, _leaf(found, here.size, own.get(path)))
    return made


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    else:
        yield path, value


def _place(made: dict[str, Any], path: Path, leaf: Any) -> None:
    *outer, last = path
    for key in outer:
        made = made.setdefault(key, {})
    made[last] = leaf


def _described(leaf: Any) -> Leaf:
    if not isinstance(leaf, Tensor):
        try:
            encode(leaf)
        except OnefoldError:
            return "other", type(leaf).__name__
        return "value", leaf
    fields = [list(leaf.shape), leaf.dtype, leaf.device.type]
    if leaf.is_local:
        return "local", fields
    layout = [(sbp.kind, sbp.dim if sbp.kind == "S" else 0) for sbp in leaf.sbp]
    return "global", [*fields, leaf.placement.ranks.tolist(), layout]


def _check(path: Path, found: Mapping[int, Leaf], size: int) -> None:
    """Raise RankMismatch where ranks have different leaves in one place."""
    first, *others = found
    advice = (
        "give them names of their own on each rank; of optimizers' groups, get_state_dict does so "
        "with StateDictOptions(flatten_optimizer_state_dict=True)"
    )
    for rank in others:
        # As texts, in which NaN is equal to itself.
        if to_text(encode(found[rank])) != to_text(encode(found[first])):
            raise RankMismatch(
                f"distributed.checkpoint.save: ranks {first} and {rank} have different values of "
                f"{_name(path)!r}, {_text(found[first])} and {_text(found[rank])}: {advice}"
            )
    if len(found) < size and found[first][0] == "other":
        raise RankMismatch(
            f"distributed.checkpoint.save: only the ranks {list(found)} have {_name(path)!r}, "
            f"which is a {found[first][1]}: save tensors, numbers and strings in dicts, or the "
            "same on all"
        )


def _check_empty(path: Path, found: Mapping[int, Leaf]) -> None:
    """Raise RankMismatch where a rank has a value in the place of a dict of others."""
    for rank, (kind, value) in found.items():
        if kind != "value" or value != {}:
            raise RankMismatch(
                f"distributed.checkpoint.save: rank {rank} has a value at {_name(path)!r}, "
                f"{_text((kind, value))}, but other ranks have a dict there: give it another name"
            )


def _name(path: Path) -> str:
    return ".".join(map(str, path))


def _text(leaf: Leaf) -> str:
    return str(leaf[1])[:200]


def _leaf(found: Mapping[int, Leaf], size: int, own: Any) -> Any:
    """What stands for a leaf on this rank, `own` if it has it."""
    rank, (kind, fields) = next(iter(found.items()))
    if kind == "other" or (kind == "local" and len(found) == size):
        return own
    if kind == "value":
        return fields
    shape, dtype, device, *layout = fields
    if kind == "global":
        return _elsewhere(shape, dtype, device, *layout) if own is None else own
    if world().rank != rank:
        return _elsewhere(shape, dtype, device, [rank], [("B", 0)])
    meta = Meta.of(tuple(shape), dtype, Placement(device, [rank]), (broadcast,))
    return from_shards(own.shards, meta)


def _elsewhere(
    shape: list[int], dtype: torch.dtype, device: str, ranks: Any, layout: list[tuple[str, int]]
) -> Tensor:
    """A global tensor of which this rank holds nothing."""
    sbp: NdSbp = tuple([split(dim) if kind == "S" else _SBPS[kind] for kind, dim in layout])
    return from_shards((), Meta.of(tuple(shape), dtype, Placement(device, ranks), sbp))
