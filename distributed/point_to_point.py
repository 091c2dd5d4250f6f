"""Point-to-point messages between any ranks of a launched world, in one batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from .connection import Connection
from .pending import Counter, Pending
from .rank_check import CollectiveCall, agree_on_messages, form
from .wait import current_op, stage, wait_for
from .wire_format import from_bytes, size_in_bytes, to_bytes
from .world import world

Expected = tuple[int, Sequence[int], torch.dtype, torch.device]

# What a batch of messages goes through: on a device or off it, and the process group.
_Carrier: TypeAlias = tuple[bool, dist.ProcessGroup | None]
_Batches: TypeAlias = dict[_Carrier, list[dist.P2POp]]


@dataclass(slots=True, eq=False)
class Posted:
    """Messages on their way. Keep it until `wait` or `done`: it holds what they are read from."""

    _link: Connection
    _pending: Pending
    _works: dict[_Carrier, list[dist.Work]]
    _buffers: list[Tensor]
    _recvs: Sequence[Expected]

    def done(self) -> bool:
        """Whether every message has left and arrived."""
        return all(work.is_completed() for works in self._works.values() for work in works)

    def wait(self) -> list[Tensor]:
        """What was received, in the order that was asked for; on a device its stream waits."""
        for (on_device, _), works in self._works.items():
            wait_for(self._link, self._pending, on_device, works)
        return [
            from_bytes(data.to(device), shape, dtype)
            for data, (_, shape, dtype, device) in zip(self._buffers, self._recvs, strict=True)
        ]


def transfer(sends: Sequence[tuple[int, Tensor]], recvs: Sequence[Expected]) -> list[Tensor]:
    """Send and receive in one batch; returns what was received, in the order of `recvs`.

    `sends` holds `(to, tensor)`, `recvs` holds `(from, shape, dtype, device)`. Any global ranks,
    the own one included; any shapes and dtypes. Messages between two ranks match in the order of
    the lists, so both ends list them in one global order, and hold them on the same type of
    device. Processes with nothing to send or receive need not call. Cannot deadlock.

    Example: `transfer([(1, t)], [])` on rank 0 goes with
    `transfer([], [(0, t.shape, t.dtype, t.device)])` on rank 1.
    """
    return post(sends, recvs).wait()


def post(sends: Sequence[tuple[int, Tensor]], recvs: Sequence[Expected]) -> Posted:
    """Start what `transfer` does and return at once.

    What is sent must not change before the messages have left. Cannot deadlock while every rank
    posts its transfers in an order that agrees with one order of all transfers of the job.
    """
    link = world().connection()
    peers = sorted({to for to, _ in sends} | {expected[0] for expected in recvs})
    counters = [link.pair(peer) for peer in peers if peer != link.rank]
    for counter in counters:
        # Not before its turn: who has begun to communicate and does not compare has gone on.
        counter.seq += 1
        _agree(link, counter, sends, recvs)
    handles = {peer: link.message_group(peer) for peer in peers}
    batches: _Batches = defaultdict(list)
    buffers = _receive(link, sends, recvs, handles, batches)
    for to, t in sends:
        if to != link.rank and t.numel():
            data = stage(link, to_bytes(t))
            message = dist.P2POp(dist.isend, data, to, handles[to])
            batches[data.is_cuda, handles[to]].append(message)
    pending = Pending("transfer", current_op.name, [replace(counter) for counter in counters])
    # In the order of the peers on every rank: after an error each pair of ranks has a group of its
    # own, and what begins there first waits for both of them.
    carriers = [(on_device, handles[peer]) for peer in peers for on_device in (False, True)]
    works = {
        carrier: link.meet(pending, partial(dist.batch_isend_irecv, batches[carrier]))
        for carrier in dict.fromkeys(carriers)
        if carrier in batches
    }
    return Posted(link, pending, works, buffers, recvs)


def _receive(
    link: Connection,
    sends: Sequence[tuple[int, Tensor]],
    recvs: Sequence[Expected],
    handles: Mapping[int, dist.ProcessGroup | None],
    batches: _Batches,
) -> list[Tensor]:
    """A buffer of bytes per expected message. Empty messages do not travel; own ones are here."""
    own = iter([t for to, t in sends if to == link.rank])
    buffers = []
    for source, shape, dtype, device in recvs:
        if source == link.rank:
            buffers.append(to_bytes(next(own).clone()))
            continue
        where = "cpu" if link.staged else device
        data = torch.empty(size_in_bytes(shape, dtype), dtype=torch.uint8, device=where)
        buffers.append(data)
        if data.numel():
            message = dist.P2POp(dist.irecv, data, source, handles[source])
            batches[data.is_cuda, handles[source]].append(message)
    return buffers


def _agree(
    link: Connection,
    counter: Counter,
    sends: Sequence[tuple[int, Tensor]],
    recvs: Sequence[Expected],
) -> None:
    """Agree with one other rank on the messages to and from it."""
    peer = sum(counter.ranks) - link.rank
    outs = tuple([(tuple(t.shape), t.dtype, t.device.type) for to, t in sends if to == peer])
    ins = tuple(
        [
            (tuple(shape), dtype, device.type)
            for source, shape, dtype, device in recvs
            if source == peer
        ]
    )
    what = ("transfer", outs, ins) if link.rank < peer else ("transfer", ins, outs)

    def describe() -> CollectiveCall:
        forms = [
            [f"{form(shape, dtype)} on {device}" for shape, dtype, device in each]
            for each in (outs, ins)
        ]
        return CollectiveCall("transfer", sends={peer: forms[0]}, recvs={peer: forms[1]})

    agree_on_messages(link, counter, what, describe)
