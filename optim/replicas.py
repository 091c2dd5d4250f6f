"""check_replicas: compares the values that several ranks should hold alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from ..distributed import collectives
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


class _Module(Protocol):
    """What is asked of a module."""

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]: ...
    def named_buffers(self) -> Iterator[tuple[str, Tensor]]: ...


def check_replicas(module: _Module, optimizer: Optimizer | None = None) -> None:
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
    found += [(f"buffer '{name}'", buffer) for name, buffer in module.named_buffers()]
    if optimizer is not None:
        found += state_of(optimizer, names)
    compare_replicas(found, "check_replicas")


def parameters_of(optimizer: Optimizer) -> list[Named]:
    """The parameters of an optimizer, named by their numbers."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    kind = type(optimizer).__name__
    return [(f"parameter {number} of {kind}", param) for number, param in enumerate(params)]


def state_of(optimizer: Optimizer, names: dict[int, str] | None = None) -> list[Named]:
    """The tensors that an optimizer keeps, by the names or numbers of their parameters."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    return [
        (f"{key} of parameter {(names or {}).get(id(param), number)!r}", value)
        for number, param in enumerate(params)
        for key, value in optimizer.state.get(param, {}).items()
        if isinstance(value, Tensor)
    ]


def compare_replicas(named: Iterable[Named], what: str) -> None:
    """Raise RankMismatch for the first of the tensors whose replicas differ; all members call."""
    tables: dict[Placement, list[Named]] = {}
    for name, tensor in named:
        meta = tensor.meta
        if meta.placement is not None and broadcast in meta.nd_sbp:
            tables.setdefault(meta.placement, []).append((name, tensor))
    here = world()
    for placement, rows in tables.items():
        if here.launched and here.rank in placement.position:
            current_op.name = what
            _compare(placement, rows, what)
        elif not here.launched:
            _compare_owned(placement, rows, what)


def _compare(placement: Placement, rows: Sequence[Named], what: str) -> None:
    ranks = placement.flat_ranks
    if len(ranks) == 1:
        return
    mine = torch.tensor([_checksum(tensor.shards[0]) for _, tensor in rows])
    told = torch.stack(collectives.all_gather(mine, ranks, [mine.shape] * len(ranks)))
    for index, (name, tensor) in enumerate(rows):
        column = told[:, index].tolist()
        for one, two in _replicas(tensor):
            if column[one] != column[two]:
                shard = tensor.shards[0].contiguous()
                shapes = [tensor.meta.local_shape(place) for place in range(len(ranks))]
                held = collectives.all_gather(shard, ranks, shapes)
                raise _differs(what, name, tensor, ranks[one], held[one], ranks[two], held[two])


def _compare_owned(placement: Placement, rows: Sequence[Named], what: str) -> None:
    """The same in a virtual world, whose replicas are most often one torch tensor."""
    ranks = placement.flat_ranks
    for name, tensor in rows:
        for one, two in _replicas(tensor):
            a, b = tensor.shards[one], tensor.shards[two]
            if a is not b and _checksum(a) != _checksum(b):
                raise _differs(what, name, tensor, ranks[one], a, ranks[two], b)


def _replicas(tensor: Tensor) -> Iterator[tuple[int, int]]:
    """Pairs of positions in the mesh that must hold the same, each with the first of its group."""
    placement = tensor.meta.global_placement
    axes = [axis for axis, sbp in enumerate(tensor.meta.nd_sbp) if sbp is broadcast]
    for position in range(placement.num_ranks):
        first = placement.group(position, axes)[0]
        if first != position:
            yield first, position


def _checksum(shard: torch.Tensor) -> int:
    """A sum over the bits of a shard."""
    data = to_bytes(shard)
    whole = len(data) // 8 * 8
    words = data[:whole]
    if words.storage_offset() % 8:
        words = words.clone()
    return int(words.view(torch.int64).sum()) ^ int(data[whole:].sum()) ^ len(data)


def _differs(
    what: str, name: str, tensor: Tensor, one: int, a: torch.Tensor, two: int, b: torch.Tensor
) -> RankMismatch:
    wide = torch.complex128 if a.is_complex() else torch.float64
    apart = (a.to(wide) - b.to(wide)).abs()
    unequal = int(((a != b) & ~((a != a) & (b != b))).sum())  # noqa: PLR0124
    largest = float(apart.nan_to_num(0.0).max()) if apart.numel() else 0.0
    return RankMismatch(
        f"{what}: {name}, {tensor.meta!r}, is not the same on ranks {one} and {two}: {unequal} of "
        f"{a.numel()} elements differ, by up to {largest:.3g}, at {user_line()}. "
        "Each rank must get the same numbers: "
        "look for data, a seed, an option or an order of communication that depends on "
        "the rank; ONEFOLD_CHECK=1 compares more often."
    )
