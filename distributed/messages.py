"""Single messages between two ranks, as torch sends them: matched by order and tag alone.

Nothing is compared first, so a program may send and receive in any order that does not deadlock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor

from .connection import Connection
from .pending import Pending
from .wait import stage, wait_for
from .wire_format import from_bytes, size_in_bytes, to_bytes
from .world import world

_FIRST_TAG = 1 << 16  # batches of `point_to_point` have tag 0


@dataclass(slots=True, eq=False)
class Message:
    """A message on its way. Keep it until `wait` or `is_completed`: it holds what is sent."""

    _link: Connection
    _pending: Pending
    _work: dist.Work | None  # None: it is empty
    _data: Tensor
    _arrived: Callable[[Tensor], None] | None

    def is_completed(self) -> bool:
        """Whether it has left, or arrived."""
        return self._work is None or self._work.is_completed()

    def wait(self, timeout: object = None) -> bool:
        """Wait until it has left, or arrived; then what was received is in its place."""
        if self._work is not None:
            wait_for(self._link, self._pending, self._data.is_cuda, (self._work,))
        if self._arrived is not None:
            self._arrived(self._data)
            self._arrived = None
        return True


def start_send(t: Tensor, to: int, tag: int = 0) -> Message:
    """Start to send `t` to rank `to`. It must not change before it has left."""
    link = world().connection()
    return _start(link, "send", dist.isend, stage(link, to_bytes(t)), to, tag, None)


def start_recv(t: Tensor, source: int, tag: int, arrived: Callable[[Tensor], None]) -> Message:
    """Start to receive a tensor like `t` from rank `source`; `arrived` is given it at the wait."""
    link = world().connection()
    shape, dtype, device = t.shape, t.dtype, t.device
    where = "cpu" if link.staged else device
    data = torch.empty(size_in_bytes(shape, dtype), dtype=torch.uint8, device=where)

    def take(data: Tensor) -> None:
        arrived(from_bytes(data.to(device), shape, dtype))

    return _start(link, "recv", dist.irecv, data, source, tag, take)


def _start(
    link: Connection,
    kind: str,
    function: Callable[..., dist.Work | None],
    data: Tensor,
    peer: int,
    tag: int,
    arrived: Callable[[Tensor], None] | None,
) -> Message:
    pending = Pending(kind, "", (replace(link.pair(peer)),))
    work = None
    if data.numel():
        group = link.message_group(peer)
        work = link.meet(pending, lambda: function(data, peer, group=group, tag=_FIRST_TAG + tag))
    return Message(link, pending, work, data, arrived)
