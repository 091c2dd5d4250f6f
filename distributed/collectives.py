"""Collectives between the processes of a launched world, on plain torch tensors.

Every function is called by the members of `ranks`, a tuple of global ranks that includes the
caller; its order is the order of the pieces, and the same on every member. Any shape (uneven,
empty, 0-d, not contiguous) and every dtype of torch can be moved. All take the back end from the
tensor's device: gloo for cpu, NCCL for cuda. A wait that fails raises CommTimeout or PeerLost,
which name the op, the user's line, and the ranks that arrived and those that did not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import CommError
from .connection import Connection, Group
from .json_values import decode, encode, to_text
from .rank_check import CollectiveCall, agree, form
from .wait import begin, current_op, stage
from .wire_format import from_bytes, size_in_bytes, to_bytes, to_reducible
from .world import world

T = TypeVar("T")
_REDUCE = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


# torch 2.13 renamed this function, and warns when the old name is called.
_all_gather: Callable[..., dist.Work] = (
    vars(dist).get("all_gather_single") or dist.all_gather_into_tensor
)


def _start_collective(
    link: Connection, ranks: tuple[int, ...], what: Hashable, text: Callable[[], str]
) -> Group:
    """The group of `ranks`, which begin a collective now.

    `what` is all that must be equal, and `text` says it in words.
    """
    return _begin(link, ranks, (what, ranks), lambda: CollectiveCall(text(), ranks))


def _begin(
    link: Connection, ranks: tuple[int, ...], what: Hashable, describe: Callable[[], CollectiveCall]
) -> Group:
    group = link.group(ranks)
    if not current_op.captured:
        group.counter.seq += 1
        agree(link, group.counter, what, describe)
    return group


def all_reduce(t: Tensor, ranks: tuple[int, ...], op: str, inplace: bool = False) -> Tensor:
    """The elementwise "sum", "max" or "min" of the members' tensors, all of `t`'s shape and dtype.

    `t` is left as it is unless `inplace`, which allows, but does not promise, that the result is
    put there: use the returned tensor. NaN wins in max and min; bool sums are "or"; integer sums
    wrap. OnefoldTypeError for max and min of complex numbers.

    Example: `all_reduce(torch.tensor([1.0, rank]), (0, 1), "sum")` on both ranks gives each
    `tensor([2., 1.])`.
    """
    return begin_all_reduce(t, ranks, op, inplace)()


def begin_all_reduce(
    t: Tensor, ranks: tuple[int, ...], op: str, inplace: bool = False
) -> Callable[[], Tensor]:
    """Start an `all_reduce`; what is returned waits for it and gives the result.

    All members begin their collectives in one order; they may end them in any. What is sent must
    not change before the end.
    """
    link = world().connection()
    data, wire_op, restore = to_reducible(t, op, inplace)
    if len(ranks) == 1:
        return lambda: restore(data)
    what = "all_reduce", op, tuple(t.shape), t.dtype
    group = _start_collective(
        link, ranks, what, lambda: f"all_reduce {op} {form(t.shape, t.dtype)}"
    )
    if not t.numel():
        return lambda: restore(data)
    moved = stage(link, data)
    wait = begin(link, group, "all_reduce", dist.all_reduce, moved, _REDUCE[wire_op])

    def end() -> Tensor:
        wait()
        return restore(moved.to(t.device))

    return end


def all_gather(t: Tensor, ranks: tuple[int, ...], shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    """Every member's tensor, in the order of `ranks`; `shapes[i]` is the shape on `ranks[i]`.

    The pieces may be views of one buffer. All members have one dtype.
    """
    return begin_all_gather(t, ranks, shapes)()


def begin_all_gather(
    t: Tensor, ranks: tuple[int, ...], shapes: Sequence[Sequence[int]]
) -> Callable[[], list[Tensor]]:
    """Start an `all_gather`, as `begin_all_reduce` starts an all-reduce."""
    return _gather(t, ranks, shapes, (tuple([tuple(shape) for shape in shapes]), t.dtype))


def _gather(
    t: Tensor, ranks: tuple[int, ...], shapes: Sequence[Sequence[int]], forms: Hashable
) -> Callable[[], list[Tensor]]:
    """Start an `all_gather`; `forms` are what members must agree on."""
    if len(ranks) == 1:
        return lambda: [t.detach().clone()]
    link = world().connection()
    sizes = [size_in_bytes(shape, t.dtype) for shape in shapes]
    if min(sizes) != max(sizes):
        return _exchange(link, "all_gather", [t] * len(ranks), shapes, ranks, forms)
    group = _start_collective(
        link,
        ranks,
        ("all_gather", forms),
        lambda: f"all_gather {', '.join(form(shape, t.dtype) for shape in shapes)}",
    )
    if not sizes[0]:
        return lambda: [t.new_empty(tuple(shape)) for shape in shapes]
    data = stage(link, to_bytes(t))
    out = data.new_empty(len(ranks) * sizes[0])
    wait = begin(link, group, "all_gather", _all_gather, out, data)

    def end() -> list[Tensor]:
        wait()
        pieces = out.to(t.device).view(len(ranks), -1)
        return [
            from_bytes(pieces[place], shape, t.dtype)
            for place, shape in zip(group.place, shapes, strict=True)
        ]

    return end


def exchange(
    sends: Sequence[Tensor],
    recv_shapes: Sequence[Sequence[int]],
    ranks: tuple[int, ...],
    forms: Hashable = None,
) -> list[Tensor]:
    """All-to-all: `sends[i]` goes to `ranks[i]`, and what `ranks[i]` sends here comes back at i.

    `recv_shapes[i]` is the shape of what comes from `ranks[i]`. Shapes are free, also empty; the
    dtype is one for all. The own piece is copied, without traveling. `forms` is what decides all
    shapes, in the same words on every member: the members agree on it before they begin.
    """
    return begin_exchange(sends, recv_shapes, ranks, forms)()


def begin_exchange(
    sends: Sequence[Tensor],
    recv_shapes: Sequence[Sequence[int]],
    ranks: tuple[int, ...],
    forms: Hashable = None,
) -> Callable[[], list[Tensor]]:
    """Start an `exchange`, as `begin_all_reduce` starts an all-reduce."""
    if len(ranks) == 1:
        return lambda: [sends[0].detach().clone()]
    return _exchange(world().connection(), "exchange", sends, recv_shapes, ranks, forms)


def _exchange(
    link: Connection,
    kind: str,
    sends: Sequence[Tensor],
    recv_shapes: Sequence[Sequence[int]],
    ranks: tuple[int, ...],
    forms: Hashable,
) -> Callable[[], list[Tensor]]:
    dtype, device = sends[0].dtype, sends[0].device

    def describe() -> CollectiveCall:
        outs = {rank: [form(s.shape, s.dtype)] for rank, s in zip(ranks, sends, strict=True)}
        ins = {rank: [form(s, dtype)] for rank, s in zip(ranks, recv_shapes, strict=True)}
        return CollectiveCall(kind, ranks, outs, ins, decided=forms is not None)

    group = _begin(link, ranks, (kind, dtype, forms, ranks), describe)
    count, me = len(ranks), group.me
    # Pieces travel in the order of the sorted group.
    seated: list[Tensor] = [sends[me]] * count
    in_sizes, out_sizes = [0] * count, [0] * count
    for i, place in enumerate(group.place):
        if i != me:
            seated[place] = sends[i]
            in_sizes[place] = sends[i].numel() * dtype.itemsize
            out_sizes[place] = size_in_bytes(recv_shapes[i], dtype)
    moved = [to_bytes(seated[place]) for place in range(count) if place != group.place[me]]
    data = stage(link, torch.cat(moved) if count > 2 else moved[0])
    out = data.new_empty(sum(out_sizes))
    wait = begin(link, group, kind, dist.all_to_all_single, out, data, out_sizes, in_sizes)

    def end() -> list[Tensor]:
        wait()
        pieces = out.to(device).split(out_sizes)
        return [
            from_bytes(pieces[place], shape, dtype) if i != me else sends[me].detach().clone()
            for i, (place, shape) in enumerate(zip(group.place, recv_shapes, strict=True))
        ]

    return end


def broadcast(
    t: Tensor | None,
    shape: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
    src: int,
    ranks: tuple[int, ...],
) -> Tensor:
    """The tensor `t` of rank `src`, on every member; other members pass None.

    On `src` the result is `t` itself.
    """
    assert src in ranks
    link = world().connection()
    group = _start_collective(
        link,
        ranks,
        ("broadcast", tuple(shape), dtype, src),
        lambda: f"broadcast {form(shape, dtype)} from {src}",
    )
    size = size_in_bytes(shape, dtype)
    data = torch.empty(size, dtype=torch.uint8, device=device) if t is None else to_bytes(t)
    if size and len(ranks) > 1:
        moved = stage(link, data)
        begin(link, group, "broadcast", dist.broadcast, moved, src)()
        data = moved.to(device)
    return t if t is not None else from_bytes(data, shape, dtype)


def gather_objects(obj: T, ranks: tuple[int, ...]) -> list[T]:
    """Every member's `obj`, as JSON on the way, in the order of `ranks`.

    It is of plain values: numbers, strings, dtypes, errors, and lists, tuples, sets and dicts of
    them. Raises OnefoldTypeError for others, and CommError for bytes that are none of these.
    """
    data = torch.frombuffer(bytearray(to_text(encode(obj)).encode()), dtype=torch.uint8)
    size = torch.tensor(data.numel(), device="cpu")  # also in a block of another device
    sizes = all_gather(size, ranks, [()] * len(ranks))
    # Members have just exchanged the sizes.
    pieces = _gather(data, ranks, [(int(each),) for each in sizes], "objects")()
    return [read_object(piece) for piece in pieces]


def read_object(data: Tensor) -> Any:
    """The value in the bytes that another process sent; CommError for what is none."""
    try:
        return decode(json.loads(data.numpy().tobytes()))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CommError(f"another process sent an invalid value: {error}") from error


def barrier(ranks: tuple[int, ...]) -> None:
    """Return when every member has called this. Devices are not waited for."""
    link = world().connection()
    group = _start_collective(link, ranks, "barrier", lambda: "barrier")
    if len(ranks) > 1:
        token = torch.zeros(1, dtype=torch.int32, device="cpu")
        begin(link, group, "barrier", dist.all_reduce, token)()
