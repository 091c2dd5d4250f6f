"""Messages and objects between ranks, under torch.distributed's names and arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..distributed import collectives
from ..distributed.messages import Message, start_recv, start_send
from ..distributed.world import world
from ..engine.grad_mode import no_grad
from ..engine.tensor import Tensor
from ..engine.values import from_torch
from ..errors import MixedTensorsError, OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from .group_collectives import Group, Work, members, rank_of, root_of


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Message:
    """Start to send a tensor, which must not change before the end, to rank `dst`."""
    peer = _other(rank_of(dst, group_dst, group, "dst"), "send to")
    return start_send(_value(tensor), peer, tag)


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Message:
    """Start to receive what rank `src` sends; it is in `tensor` after `wait()`."""
    peer = _other(rank_of(src, group_src, group, "src"), "receive from")

    def arrived(data: torch.Tensor) -> None:
        with no_grad():
            tensor.copy_(from_torch(data))

    return start_recv(_value(tensor), peer, tag, arrived)


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send a tensor to rank `dst`, which calls `recv` with one of that shape and dtype.

    Otherwise `recv` raises RankMismatch.
    """
    isend(tensor, dst, group, tag, group_dst).wait()


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Write what rank `src` sends into `tensor`; returns the rank.

    Raises RankMismatch if that has another dtype or number of elements.
    """
    irecv(tensor, src, group, tag, group_src).wait()
    return rank_of(src, group_src, group, "src")


class P2POp:
    """A message for `batch_isend_irecv`: `op` is `isend` or `irecv`."""

    def __init__(
        self,
        op: Callable[..., Message],
        tensor: Tensor,
        peer: int | None = None,
        group: Group = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise OnefoldRuntimeError(f"P2POp: op must be dist.isend or dist.irecv, but got {op!r}")
        self.op = op
        self.tensor = tensor
        self.peer = rank_of(peer, group_peer, group, "peer")
        self.group = group
        self.tag = tag


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Message]:
    """Start the messages of a list."""
    if not p2p_op_list or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise OnefoldRuntimeError("batch_isend_irecv takes a list of P2POp, with at least one")
    return [each.op(each.tensor, each.peer, None, each.tag) for each in p2p_op_list]


def _value(x: Tensor) -> torch.Tensor:
    if not isinstance(x, Tensor):
        raise OnefoldTypeError(f"got {type(x).__name__}, but tensors must be onefold Tensors")
    if x.is_global:
        raise MixedTensorsError(
            f"got a global tensor, {x.meta!r}, but messages are local ones: to_local() gives this "
            "rank's part"
        )
    return x.shards[0].detach()


def _other(rank: int, what: str) -> int:
    here = world()
    if not 0 <= rank < here.size:
        raise OnefoldValueError(f"got rank {rank}, but the job has ranks 0 to {here.size - 1}")
    if rank == (here.rank or 0) or not here.launched:
        raise OnefoldValueError(f"Invalid peer rank {rank}: cannot {what} this process itself")
    return rank


# Objects: plain values, which travel as JSON. No process executes what another one sent.


def _objects(value: object, ranks: tuple[int, ...]) -> list[Any]:
    if not world().launched:
        return [value] * len(ranks)
    return collectives.gather_objects(value, ranks)


def _from(value: object, src: int, ranks: tuple[int, ...]) -> Any:
    """The value of rank `src`."""
    mine = (world().rank or 0) == src
    return _objects(value if mine else None, ranks)[ranks.index(src)]


def _root(given: int | None, in_group: int | None, group: Group, name: str) -> int:
    """The rank that sends or receives all objects, which must be one of the group."""
    found = root_of(given, in_group, group, name)
    if found not in members(group):
        raise OnefoldValueError(f"{name} is rank {found}, but the group has {list(members(group))}")
    return found


def all_gather_object(object_list: list[Any], obj: object, group: Group = None) -> None:
    """Put the ranks' objects into `object_list`.

    Objects are numbers, strings, None, dtypes, and lists, tuples, sets and dicts of them.
    """
    ranks = members(group)
    if (world().rank or 0) in ranks:
        object_list[:] = _objects(obj, ranks)


def gather_object(
    obj: object,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Group = None,
    group_dst: int | None = None,
) -> None:
    """Put the ranks' objects into rank `dst`'s list."""
    ranks = members(group)
    if (world().rank or 0) not in ranks:
        return
    there = _root(dst, group_dst, group, "dst")
    found = _objects(obj, ranks)
    if (world().rank or 0) == there:
        if object_gather_list is None:
            raise OnefoldValueError("gather_object: give object_gather_list on the rank dst")
        object_gather_list[:] = found


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Group = None,
    device: object = None,
    group_src: int | None = None,
) -> None:
    """Put the objects of rank `src`'s list into those of the others."""
    ranks = members(group)
    if (world().rank or 0) in ranks:
        there = _root(src, group_src, group, "src")
        object_list[:] = _from(list(object_list), there, ranks)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: Sequence[Any] | None = None,
    src: int | None = None,
    group: Group = None,
    group_src: int | None = None,
) -> None:
    """Put the i-th object of rank `src`'s list into the first place of the i-th rank's list."""
    ranks = members(group)
    if (world().rank or 0) not in ranks:
        return
    there = _root(src, group_src, group, "src")
    given = _from(list(scatter_object_input_list or ()), there, ranks)
    if len(given) != len(ranks):
        raise OnefoldValueError(
            f"scatter_object_list: rank {there} gave {len(given)} objects for {len(ranks)} ranks"
        )
    scatter_object_output_list[0] = given[ranks.index(world().rank or 0)]


__all__ = [
    "P2POp",
    "Work",
    "all_gather_object",
    "batch_isend_irecv",
    "broadcast_object_list",
    "gather_object",
    "irecv",
    "isend",
    "recv",
    "scatter_object_list",
    "send",
]
