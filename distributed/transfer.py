"""Point-to-point messages between any ranks of a launched world, in one batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from .check import compare, form
from .connection import Connection
from .watch import Counter
from .wire import from_bytes, size_in_bytes, to_bytes
from .works import current_op, run_works, stage
from .world import world

Expected = tuple[int, Sequence[int], torch.dtype, torch.device]


def transfer(sends: Sequence[tuple[int, Tensor]], recvs: Sequence[Expected]) -> list[Tensor]:
    """Send and receive in one batch; returns what was received, in the order of `recvs`.

    `sends` holds `(to, tensor)`, `recvs` holds `(from, shape, dtype, device)`. Any global ranks,
    the own one included; any shapes and dtypes. Messages between two ranks match in the order of
    the lists, so both ends list them in one global order, and hold them on the same type of
    device. Processes with nothing to send or receive need not call. Cannot deadlock.

    Example: `transfer([(1, t)], [])` on rank 0 goes with
    `transfer([], [(0, t.shape, t.dtype, t.device)])` on rank 1.
    """
    link = world().connection()
    peers = sorted({to for to, _ in sends} | {expected[0] for expected in recvs})
    counters = [link.pair(peer) for peer in peers if peer != link.rank]
    for counter in counters:
        counter.seq += 1
    if link.check:
        _check(link, counters, sends, recvs)
    # One batch per back end: on a device and off it.
    batches: dict[bool, list[dist.P2POp]] = {False: [], True: []}
    buffers = _receive(link, sends, recvs, batches)
    for to, t in sends:
        if to != link.rank and t.numel():
            data, on_device = stage(link, to_bytes(t))
            batches[on_device].append(dist.P2POp(dist.isend, data, to))
    for on_device, batch in batches.items():
        if batch:
            run_works(link, "transfer", counters, on_device, dist.batch_isend_irecv, batch)
    return [
        from_bytes(data.to(device), shape, dtype)
        for data, (_, shape, dtype, device) in zip(buffers, recvs, strict=True)
    ]


def _receive(
    link: Connection,
    sends: Sequence[tuple[int, Tensor]],
    recvs: Sequence[Expected],
    batches: dict[bool, list[dist.P2POp]],
) -> list[Tensor]:
    """A buffer of bytes per expected message. Empty messages do not travel; own ones are here."""
    own = iter([t for to, t in sends if to == link.rank])
    buffers = []
    for source, shape, dtype, device in recvs:
        if source == link.rank:
            buffers.append(to_bytes(next(own).clone()))
            continue
        on_device = device.type == "cuda" and not link.staged
        where = device if on_device else torch.device("cpu")
        data = torch.empty(size_in_bytes(shape, dtype), dtype=torch.uint8, device=where)
        buffers.append(data)
        if data.numel():
            batches[on_device].append(dist.P2POp(dist.irecv, data, source))
    return buffers


def _check(
    link: Connection,
    counters: Sequence[Counter],
    sends: Sequence[tuple[int, Tensor]],
    recvs: Sequence[Expected],
) -> None:
    for counter in counters:
        peer = sum(counter.ranks) - link.rank
        outs = [f"{form(t.shape, t.dtype)} on {t.device.type}" for to, t in sends if to == peer]
        ins = [
            f"{form(shape, dtype)} on {device.type}"
            for source, shape, dtype, device in recvs
            if source == peer
        ]
        compare(link, counter, current_op.name, "transfer", {peer: outs}, {peer: ins})
