"""A stand-in for NCCL: Gloo that refuses what NCCL refuses, and a check that devices cannot wait.

`install` puts it into a process of a launched world. Tensors of the host stand for those of a
device then. What a collective receives is garbage until its wait, and what it sends must not change
before that. Each process writes down what it begins and waits for; `check_order` follows the
records of all, as a device with one queue for each communicator would, and names what never ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from launched import run_ranks
from torch import Tensor

from onefold.distributed import collectives
from onefold.distributed.world import world
from onefold.engine.boxing import combine, launched_steps

_DTYPES = {
    torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64,
}  # fmt: skip
_NAMES = {dist.ReduceOp.SUM: "sum", dist.ReduceOp.MAX: "max", dist.ReduceOp.MIN: "min"}
# What these functions send is on the host where there are devices, too.
_OF_HOST = {
    ("named_groups.py", "shake_hands"), ("connection.py", "_make_world"),
    ("rank_error.py", "close_connections"), ("collectives.py", "barrier"),
    ("collectives.py", "gather_objects"), ("rank_agreement.py", "begin"),
    ("replicas.py", "_compare"), ("local_collectives.py", "send"), ("local_collectives.py", "recv"),
}  # fmt: skip
_POISON = 0xA5


class Refused(AssertionError):
    """NCCL would refuse it, or compute something else."""


@dataclass(frozen=True)
class Begun:
    """What a rank begins on a communicator: a collective of `members`, or a batch of messages."""

    number: int
    comm: str
    members: tuple[int, ...]
    what: str = ""  # of a collective, the same on all
    sends: tuple[tuple[int, int], ...] = ()  # (rank, bytes)
    recvs: tuple[tuple[int, int], ...] = ()

    @property
    def is_batch(self) -> bool:
        return not self.what


@dataclass(frozen=True)
class Waited:
    """A wait for what has this number, of the device, and perhaps of the host."""

    number: int


@dataclass(frozen=True)
class OfHost:
    """A collective between hosts."""

    members: tuple[int, ...]


Event = Begun | Waited | OfHost


@dataclass
class Record:
    """What one process does, in turn."""

    rank: int
    events: list[Event] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def begin(self, group: Any, what: str = "", **messages: Any) -> int:
        number = len(self.events)
        comm, members = _members(group)
        self.events.append(Begun(number, comm, members, what, **messages))
        return number

    def refuse(self, text: str) -> None:
        self.refused.append(text)
        raise Refused(text)


def _members(group: Any) -> tuple[str, tuple[int, ...]]:
    if group is None or group is dist.group.WORLD:
        return "world", tuple(range(dist.get_world_size()))
    return group.group_name, tuple(sorted(dist.get_process_group_ranks(group)))


def _is_of_host() -> bool:
    frame = sys._getframe(2)
    for _ in range(16):
        if frame is None:
            return False
        code = frame.f_code
        if (code.co_filename.rpartition("/")[2], code.co_name) in _OF_HOST:
            return True
        frame = frame.f_back
    return False


class _Work:
    """A work that gives its results at the wait."""

    def __init__(self, record: Record, number: int, works: Sequence[Any], end: Callable[[], None]):
        self._record, self._number, self._works, self._end = record, number, works, end
        self._over = False

    def wait(self, *limit: Any) -> bool:
        for work in self._works:
            work.wait(*limit)
        self._record.events.append(Waited(self._number))
        self._finish()
        return True

    def is_completed(self) -> bool:
        done = all(work.is_completed() for work in self._works)
        if done:
            self._finish()
        return done

    def _finish(self) -> None:
        if not self._over:
            self._over = True
            self._end()


class _Buffers:
    """The memory of a collective while it runs, which nobody may use."""

    def __init__(self, record: Record, what: str, group: Any, *tensors: Tensor) -> None:
        self._record, self._what = record, what
        for tensor in tensors:
            if tensor.dtype not in _DTYPES:
                record.refuse(f"{what} of {tensor.dtype}")
            if not tensor.is_contiguous():
                record.refuse(f"{what} of a tensor with strides {tensor.stride()}")
        self._sent: list[tuple[Tensor, Tensor]] = []
        self._made: list[tuple[Tensor, Tensor]] = []

    def send(self, tensor: Tensor) -> Tensor:
        """What is sent in place of it, so that a change can be seen."""
        copy = tensor.clone()
        self._sent.append((tensor, copy))
        return copy

    def receive(self, tensor: Tensor) -> Tensor:
        """Where its values are received until the wait."""
        tensor.view(-1).view(torch.uint8).fill_(_POISON)
        made = torch.empty_like(tensor)
        self._made.append((tensor, made))
        return made

    def end(self) -> None:
        for tensor, copy in self._sent:
            if not _same(tensor, copy):
                self._record.refuse(f"{self._what}: what is sent changed before the wait")
        for tensor, made in self._made:
            if not bool((tensor.view(-1).view(torch.uint8) == _POISON).all()):
                self._record.refuse(f"{self._what}: memory was written before the wait")
            tensor.copy_(made)


def _same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.view(-1).view(torch.uint8), b.view(-1).view(torch.uint8))


def _messages(
    record: Record, real: Callable[[list[dist.P2POp]], list[Any]]
) -> Callable[[list[dist.P2POp]], list[Any]]:
    """What stands for `dist.batch_isend_irecv`."""

    def batch_isend_irecv(ops: list[dist.P2POp]) -> list[Any]:
        if _is_of_host():
            for op in ops:
                record.events.append(OfHost(tuple(sorted((record.rank, op.peer)))))
            return list(real(ops))
        group = ops[0].group
        buffers = _Buffers(record, "messages", group, *[op.tensor for op in ops])
        sends = tuple([(op.peer, op.tensor.nbytes) for op in ops if op.op is dist.isend])
        recvs = tuple([(op.peer, op.tensor.nbytes) for op in ops if op.op is dist.irecv])
        if record.rank in {peer for peer, _ in (*sends, *recvs)}:
            record.refuse("a message to the own rank")
        number = record.begin(group, sends=sends, recvs=recvs)
        moved = [
            dist.P2POp(
                op.op,
                buffers.send(op.tensor) if op.op is dist.isend else buffers.receive(op.tensor),
                op.peer,
                op.group,
            )
            for op in ops
        ]
        return [_Work(record, number, real(moved), buffers.end)]

    return batch_isend_irecv


def install(rank: int) -> Record:
    """Let this process communicate through the stand-in; what it will have done."""
    record = Record(rank)
    real = {name: getattr(dist, name) for name in
            ("all_reduce", "broadcast", "all_to_all_single", "batch_isend_irecv")}  # fmt: skip
    gather = collectives._all_gather

    def on_host(function: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Any, *args: Any, group: Any = None, **options: Any) -> Any:
            if _is_of_host():
                record.events.append(OfHost(_members(group)[1]))
                return function(first, *args, group=group, **options)
            if not options.get("async_op"):  # none of ours
                return function(first, *args, group=group, **options)
            return fake(first, *args, group=group)

        return call

    def all_reduce(tensor: Tensor, op: Any, group: Any) -> _Work:
        if op not in _NAMES:
            record.refuse(f"all_reduce {op}")
        what = f"all_reduce {_NAMES[op]} {tensor.dtype} {tensor.numel()}"
        buffers = _Buffers(record, what, group, tensor)
        number = record.begin(group, what)
        count = len(_members(group)[1])
        whole = tensor.new_empty((count, *tensor.shape))
        work = gather(whole.view(-1), buffers.send(tensor).view(-1), group=group, async_op=True)

        def end() -> None:
            buffers.end()
            tensor.copy_(combine.reduce(list(whole), _NAMES[op]))

        return _Work(record, number, [work], end)

    def all_gather(out: Tensor, data: Tensor, group: Any) -> _Work:
        what = f"all_gather {data.dtype} {data.numel()}"
        buffers = _Buffers(record, what, group, out, data)
        if out.numel() != data.numel() * len(_members(group)[1]):
            record.refuse(f"{what} into {out.numel()} elements")
        number = record.begin(group, what)
        work = gather(buffers.receive(out), buffers.send(data), group=group, async_op=True)
        return _Work(record, number, [work], buffers.end)

    def all_to_all_single(
        out: Tensor, data: Tensor, out_sizes: list[int], in_sizes: list[int], group: Any
    ) -> _Work:
        buffers = _Buffers(record, "all_to_all", group, out, data)
        number = record.begin(group, "all_to_all")
        work = real["all_to_all_single"](
            buffers.receive(out), buffers.send(data), out_sizes, in_sizes, group=group,
            async_op=True,
        )  # fmt: skip
        return _Work(record, number, [work], buffers.end)

    def broadcast(tensor: Tensor, src: int, group: Any) -> _Work:
        what = f"broadcast {tensor.dtype} {tensor.numel()} from {src}"
        buffers = _Buffers(record, what, group, tensor)
        number = record.begin(group, what)
        moved = buffers.send(tensor) if src == record.rank else buffers.receive(tensor)
        work = real["broadcast"](moved, src, group=group, async_op=True)
        return _Work(record, number, [work], buffers.end)

    dist.all_reduce = on_host(real["all_reduce"], all_reduce)
    dist.broadcast = on_host(real["broadcast"], broadcast)
    dist.all_to_all_single = on_host(real["all_to_all_single"], all_to_all_single)
    dist.batch_isend_irecv = _messages(record, real["batch_isend_irecv"])
    collectives._all_gather = on_host(gather, all_gather)
    launched_steps._at_once = lambda step, rank: True  # as with NCCL
    return record


def check_order(records: Sequence[Record]) -> None:
    """Raise Refused if the ranks' devices, or their hosts, would wait for each other for ever."""
    _Devices(records).run()


class _Devices:
    """All ranks: how far each host is, and a queue for each of its communicators.

    A wait is one of the host, too: in the worst case the program reads what it has waited for. So
    is the first collective on a communicator, and the first message between two ranks of it.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.events = {record.rank: record.events for record in records}
        self.at = dict.fromkeys(self.events, 0)
        self.issued = dict.fromkeys(self.events, -1)  # the last event that is in its queue
        self.queues: dict[tuple[int, str], list[Begun]] = {}
        self.ended: dict[int, set[int]] = {rank: set() for rank in self.events}
        self.left: dict[tuple[int, int], set[tuple[str, int]]] = {}  # messages of batches
        self.known: set[object] = {"world"}  # communicators, and pairs of ranks of them

    def run(self) -> None:
        while any([self._step(rank) for rank in self.events] + [self._move()]):
            pass
        stuck = {rank: self.events[rank][at] for rank, at in self.at.items()
                 if at < len(self.events[rank])}  # fmt: skip
        if stuck:
            raise Refused("\n".join(f"rank {r} waits in {event}" for r, event in stuck.items()))

    def _now(self, rank: int) -> Event | None:
        events, at = self.events[rank], self.at[rank]
        return events[at] if at < len(events) else None

    def _step(self, rank: int) -> bool:
        event = self._now(rank)
        if event is None:
            return False
        if isinstance(event, Waited):
            if event.number not in self.ended[rank]:
                return False
            self.at[rank] += 1
            return True
        if isinstance(event, OfHost):
            here = [self._now(other) for other in event.members]
            if len(event.members) > 1 and here.count(event) < len(here):
                return False
            for other in event.members:
                self.at[other] += 1
            return True
        return self._begin(rank, event)

    def _begin(self, rank: int, event: Begun) -> bool:
        if self.issued[rank] < self.at[rank]:
            self.issued[rank] = self.at[rank]
            self.queues.setdefault((rank, event.comm), []).append(event)
            self.left[rank, event.number] = {("send", i) for i in range(len(event.sends))} | {
                ("recv", i) for i in range(len(event.recvs))
            }
        if not self._connected(rank, event):
            return False
        self.at[rank] += 1
        return True

    def _connected(self, rank: int, event: Begun) -> bool:
        """Whether the host need not wait for others to connect."""
        if event.comm not in self.known:
            if not all(self._is_at(other, event.comm) for other in event.members):
                return False
            self.known.add(event.comm)
        if not event.is_batch:
            return True
        pairs = [(event.comm, rank, peer) for peer, _ in event.sends]
        pairs += [(event.comm, peer, rank) for peer, _ in event.recvs]
        for comm, source, target in pairs:
            if (comm, source, target) not in self.known:
                other = target if source == rank else source
                at = self._now(other)
                if not isinstance(at, Begun) or at.comm != comm:
                    return False
                way = at.recvs if source == rank else at.sends
                if self.issued[other] < self.at[other] or rank not in {peer for peer, _ in way}:
                    return False
                self.known.add((comm, source, target))
        return True

    def _is_at(self, rank: int, comm: str) -> bool:
        event = self._now(rank)
        return isinstance(event, Begun) and event.comm == comm

    def _move(self) -> bool:
        """End what is first in the queues of all that take part."""
        moved = False
        for (rank, comm), queue in self.queues.items():
            if not queue:
                continue
            head = queue[0]
            if not head.is_batch:
                heads = [self._head(other, comm) for other in head.members]
                if any(each is None or each.is_batch for each in heads):
                    continue
                if {each.what for each in heads if each is not None} != {head.what}:
                    raise Refused(f"ranks {head.members} meet in {heads}")
                for other, each in zip(head.members, heads, strict=True):
                    assert each is not None
                    self._end(other, each)
                moved = True
                continue
            for index, (peer, size) in enumerate(head.sends):
                moved |= self._deliver(rank, peer, index, size, head)
        return moved

    def _head(self, rank: int, comm: str) -> Begun | None:
        queue = self.queues.get((rank, comm), [])
        return queue[0] if queue else None

    def _deliver(self, rank: int, peer: int, index: int, size: int, head: Begun) -> bool:
        left = self.left[rank, head.number]
        other = self._head(peer, head.comm)
        if ("send", index) not in left or other is None or not other.is_batch:
            return False
        theirs = self.left[peer, other.number]
        arriving = [i for i, (source, _) in enumerate(other.recvs)
                    if source == rank and ("recv", i) in theirs]  # fmt: skip
        if not arriving:
            return False
        if other.recvs[arriving[0]][1] != size:
            raise Refused(f"rank {rank} sends {size} bytes in {head}, not those of {other}")
        left.discard(("send", index))
        theirs.discard(("recv", arriving[0]))
        for at, batch in ((rank, head), (peer, other)):
            if not self.left[at, batch.number]:
                self._end(at, batch)
        return True

    def _end(self, rank: int, event: Begun) -> None:
        self.queues[rank, event.comm].pop(0)
        self.ended[rank].add(event.number)


def run_like_nccl(n: int, program: Callable[[], Any], timeout: float = 60.0) -> list[Any]:
    """`run_ranks` with the stand-in: what `program` gives on each rank."""

    def recorded() -> tuple[Any, Record]:
        record = install(world().rank or 0)
        return program(), record

    found = run_ranks(n, recorded, timeout=timeout)
    check_order([record for _, record in found])
    return [result for result, _ in found]
