"""Single messages between two ranks, as torch sends them: matched by order and tag alone.

Nothing is compared first, so a program may send and receive in any order that does not deadlock.
A message that travels through hosts begins with what it is, which its receiver compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import RankMismatch, user_line
from .connection import Connection
from .pending import Pending
from .rank_check import form
from .wait import stage, wait_for
from .wire_format import from_bytes, size_in_bytes, to_bytes
from .world import world

_FIRST_TAG = 1 << 16  # batches of `point_to_point` have tag 0
_HEADER = 128  # bytes, so that the data behind them is aligned
# Through hosts the first bytes travel with the header, so that little is copied, and the others
# apart. Gloo ends the process when more arrives than there is room for, so there is always room
# for as many, and for twice the others: memory that nothing is written to costs little.
_TOGETHER = 1 << 16


@dataclass(slots=True, eq=False)
class Message:
    """A message on its way. Keep it until `wait` or `is_completed`: it holds what is sent."""

    _link: Connection
    _pending: Pending
    _works: Sequence[dist.Work]
    _pieces: Sequence[Tensor]  # one for each work
    _compare: Callable[[Tensor], None] | None  # looks at the first piece before the next is awaited
    _arrived: Callable[[], None] | None

    def is_completed(self) -> bool:
        """Whether it has left, or arrived."""
        return all(work.is_completed() for work in self._works)

    def wait(self, timeout: object = None) -> bool:
        """Wait until it has left, or arrived; then what was received is in its place."""
        for work, piece in zip(self._works, self._pieces, strict=True):
            wait_for(self._link, self._pending, piece.is_cuda, (work,))
            if self._compare is not None:
                self._compare(piece)
                self._compare = None
        if self._arrived is not None:
            self._arrived()
            self._arrived = None
        return True


def start_send(t: Tensor, to: int, tag: int = 0) -> Message:
    """Start to send `t` to rank `to`. It must not change before it has left."""
    link = world().connection()
    data = stage(link, to_bytes(t))
    pieces = [data]
    if not data.is_cuda:
        header = bytearray(_header(t.shape, t.dtype).encode()[:_HEADER].ljust(_HEADER))
        first = torch.cat([torch.frombuffer(header, dtype=torch.uint8), data[:_TOGETHER]])
        pieces = [first, data[_TOGETHER:]]
    return _start(link, "send", dist.isend, pieces, to, tag)


def start_recv(t: Tensor, source: int, tag: int, arrived: Callable[[Tensor], None]) -> Message:
    """Start to receive a tensor like `t` from rank `source`; `arrived` is given it at the wait.

    The wait raises RankMismatch, on the other rank at its next communication, when what was sent
    has another dtype or number of elements.
    """
    link = world().connection()
    shape, dtype, device = t.shape, t.dtype, t.device
    where = torch.device("cpu") if link.staged else device
    size, line = size_in_bytes(shape, dtype), user_line()
    before = 0 if where.type == "cuda" else _HEADER
    others = max(0, size - _TOGETHER)
    room = before + _TOGETHER + 2 * others if before else size
    data = torch.empty(room, dtype=torch.uint8, device=where)
    pieces = [data[: before + _TOGETHER], data[before + _TOGETHER :]] if before else [data]

    def compare(first: Tensor) -> None:
        dtype_and_size, _, sent = first[:before].numpy().tobytes().decode().partition("; ")
        if dtype_and_size != _header(shape, dtype).partition("; ")[0]:
            error = RankMismatch(
                f"recv: rank {source} sent {sent.rstrip()}, but rank {link.rank} receives "
                f"{form(shape, dtype)}, at {line}. Give recv a tensor of the shape and dtype that "
                "is sent"
            )
            link.fail(error)
            raise error

    def take() -> None:
        arrived(from_bytes(data[before : before + size].to(device), shape, dtype))

    return _start(link, "recv", dist.irecv, pieces, source, tag, compare if before else None, take)


def _header(shape: torch.Size, dtype: torch.dtype) -> str:
    """What must be equal of a message, as torch does not compare the dims; and its form."""
    return f"{dtype} {shape.numel()}; {form(shape, dtype)}"


def _start(
    link: Connection,
    kind: str,
    function: Callable[..., dist.Work | None],
    pieces: Sequence[Tensor],
    peer: int,
    tag: int,
    compare: Callable[[Tensor], None] | None = None,
    arrived: Callable[[], None] | None = None,
) -> Message:
    pending = Pending(kind, "", (replace(link.pair(peer)),))
    pieces = [piece for piece in pieces if piece.numel()]
    works = []
    for piece in pieces:
        begin = partial(function, piece, peer, group=link.message_group(peer), tag=_FIRST_TAG + tag)
        work = link.meet(pending, begin)
        assert work is not None
        works.append(work)
    return Message(link, pending, works, pieces, compare, arrived)
