"""check_replicas: compares the values that several ranks should hold alike."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from ..distributed import collectives, transfer
from ..distributed.wait import current_op
from ..distributed.wire_format import to_bytes
from ..distributed.world import world
from ..engine.placement import Placement
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, RankMismatch, user_line

if TYPE_CHECKING:
    from .optimizer import Optimizer

Named = tuple[str, Tensor]
Options = dict[str, str]  # their texts, by name

# How many of the tensors that differ are looked at, where they may do so a little.
_MAX_ROUNDED = 8


class HasState(Protocol):
    """The interface that is required of a module."""

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]: ...
    def named_buffers(self) -> Iterator[tuple[str, Tensor]]: ...


def check_replicas(module: HasState, optimizer: Optimizer | None = None) -> None:
    """Compare the replicas of parameters and buffers, and of the optimizer's state.

    All ranks of the tensors' placements call it. Raises RankMismatch on each of them, with the
    name of the first tensor whose replicas differ, the ranks, and the largest difference.

    >>> import onefold as flow
    >>> p = flow.placement("cpu", [0, 1])
    >>> layer = flow.nn.Linear(4, 2).to_global(p, flow.sbp.broadcast)
    >>> flow.check_replicas(layer)
    """
    given: object = module
    if not hasattr(given, "named_parameters") or not hasattr(given, "named_buffers"):
        raise OnefoldTypeError(
            f"check_replicas needs a module, but got {type(given).__name__}; pass the nn.Module"
        )
    found = [(f"parameter '{name}'", param) for name, param in module.named_parameters()]
    names = {id(param): name for name, param in module.named_parameters()}
    found += named_buffers(module)
    if optimizer is not None:
        found += state_of(optimizer, names)
    compare_replicas(found, "check_replicas")


def named_buffers(module: HasState) -> list[Named]:
    """The buffers of a module."""
    return [(f"buffer '{name}'", buffer) for name, buffer in module.named_buffers()]


def parameters_of(optimizer: Optimizer) -> list[Named]:
    """The parameters of an optimizer, named by their numbers."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    kind = type(optimizer).__name__
    return [(f"parameter {number} of {kind}", param) for number, param in enumerate(params)]


def state_of(optimizer: Optimizer, names: dict[int, str] | None = None) -> list[Named]:
    """The state tensors of an optimizer, by the names or numbers of their parameters."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    return [
        (f"{key} of parameter {(names or {}).get(id(param), number)!r}", value)
        for number, param in enumerate(params)
        for key, value in optimizer.state.get(param, {}).items()
        if isinstance(value, Tensor)
    ]


def compare_replicas(
    named: Iterable[Named], what: str, options: Options | None = None, rounding: bool = False
) -> None:
    """Raise RankMismatch for the first of the tensors whose replicas differ; all members call.

    With `rounding` they may differ a little. `options` must be the same where there are replicas.
    """
    tables: dict[Placement, list[Named]] = {}
    for name, tensor in named:
        meta = tensor.meta
        if meta.placement is not None and broadcast in meta.nd_sbp:
            tables.setdefault(meta.placement, []).append((name, tensor))
    here = world()
    for placement, rows in tables.items():
        if here.launched and here.rank in placement.position:
            with current_op.named(what):
                _compare(placement, rows, what, options or {}, rounding)
        elif not here.launched:
            _compare_owned(placement, rows, what)


def _compare(
    placement: Placement, rows: Sequence[Named], what: str, options: Options, rounding: bool
) -> None:
    ranks = placement.flat_ranks
    if len(ranks) == 1:
        return
    told_options = zlib.crc32(repr(options).encode())
    sums = torch.stack([_checksum(tensor.shards[0]) for _, tensor in rows])
    mine = torch.cat((torch.tensor([told_options]), sums.cpu()))
    gathered = torch.stack(collectives.all_gather(mine, ranks, [mine.shape] * len(ranks)))
    columns = gathered.T.tolist()
    if len(set(columns[0])) > 1:
        raise _options_differ(what, ranks, collectives.gather_objects(options, ranks))
    pairs = [
        (name, tensor, *pair)
        for (name, tensor), column in zip(rows, columns[1:], strict=True)
        if column.count(column[0]) < len(column)
        and (pair := _first_unequal(tensor, column)) is not None
    ]
    if not pairs:
        return
    found = ""
    for name, tensor, one, two in pairs[: _MAX_ROUNDED if rounding else 1]:
        here = world().rank
        if here in (ranks[one], ranks[two]):
            shard = tensor.shards[0].contiguous()
            peer = ranks[one] + ranks[two] - here
            expected = (peer, shard.shape, shard.dtype, shard.device)
            (theirs,) = transfer([(peer, shard)], [expected])
            a, b = (shard, theirs) if here == ranks[one] else (theirs, shard)
            if not found and (not rounding or _apart(a, b)):
                found = _difference(name, tensor, ranks[one], a, ranks[two], b)
    for text in collectives.gather_objects(found, ranks):
        if text:
            raise _differs(what, text)


def _first_unequal(tensor: Tensor, column: Sequence[int]) -> tuple[int, int] | None:
    """The first positions in the mesh whose replicas differ."""
    return next(((a, b) for a, b in _replicas(tensor) if column[a] != column[b]), None)


def _apart(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two replicas differ by more than different orders of addition explain."""
    if not (a.is_floating_point() or a.is_complex()):
        return not torch.equal(a, b)
    wide = torch.complex128 if a.is_complex() else torch.float64
    a, b, eps = a.to(wide), b.to(wide), torch.finfo(a.dtype).eps
    size = torch.maximum(a.abs(), b.abs()).nan_to_num(0.0, 0.0, 0.0).max()
    return not torch.allclose(a, b, rtol=0.0, atol=float(size) * eps**0.5, equal_nan=True)


def _compare_owned(placement: Placement, rows: Sequence[Named], what: str) -> None:
    """The same in a virtual world, where replicas usually are one torch tensor."""
    ranks = placement.flat_ranks
    for name, tensor in rows:
        for one, two in _replicas(tensor):
            a, b = tensor.shards[one], tensor.shards[two]
            if a is not b and _checksum(a) != _checksum(b):
                raise _differs(what, _difference(name, tensor, ranks[one], a, ranks[two], b))


def _replicas(tensor: Tensor) -> Iterator[tuple[int, int]]:
    """Pairs of positions in the mesh that must hold the same, each with the first of its group."""
    placement = tensor.meta.global_placement
    axes = [axis for axis, sbp in enumerate(tensor.meta.nd_sbp) if sbp is broadcast]
    for position in range(placement.num_ranks):
        first = placement.group(position, axes)[0]
        if first != position:
            yield first, position


def _checksum(shard: torch.Tensor) -> torch.Tensor:
    """A sum over the bits of a shard, on its device."""
    data = to_bytes(shard)
    if data.numel() % 8 or data.storage_offset() % 8:
        data = torch.nn.functional.pad(data, (0, -data.numel() % 8))
    return data.view(torch.int64).sum()


def _difference(
    name: str, tensor: Tensor, one: int, a: torch.Tensor, two: int, b: torch.Tensor
) -> str:
    wide = torch.complex128 if a.is_complex() else torch.float64
    apart = (a.to(wide) - b.to(wide)).abs()
    unequal = int(((a != b) & ~((a != a) & (b != b))).sum())  # noqa: PLR0124
    largest = float(apart.nan_to_num(0.0).max()) if apart.numel() else 0.0
    return (
        f"{name}, {tensor.meta!r}, is not the same on ranks {one} and {two}: {unequal} of "
        f"{a.numel()} elements differ, by up to {largest:.3g}"
    )


def _differs(what: str, difference: str) -> RankMismatch:
    return RankMismatch(
        f"{what}: {difference}, at {user_line()}. Each rank must get the same numbers: "
        "look for data, a seed, an option or an order of communication that depends on "
        "the rank; ONEFOLD_CHECK=1 compares more often."
    )


def _options_differ(what: str, ranks: Sequence[int], gathered: Sequence[Options]) -> RankMismatch:
    first = gathered[0]
    other = next(index for index, theirs in enumerate(gathered) if theirs != first)
    key = next(
        key
        for key in [*first, *gathered[other]]
        if first.get(key, "none") != gathered[other].get(key, "none")
    )
    return RankMismatch(
        f"{what}: the optimizer's options differ: {key} is {first.get(key, 'none')} on rank "
        f"{ranks[0]}, and {gathered[other].get(key, 'none')} on rank {ranks[other]}, at "
        f"{user_line()}. Every rank must give the same options."
    )
