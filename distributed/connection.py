"""The connection of one process to the others: key-value store and process groups."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from traceback import walk_tb
from types import TracebackType
from typing import Protocol, TypeVar
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from ..env import (
    AGENT_STORE,
    CHECK,
    DEVICE,
    LOCAL_RANK,
    LOCAL_WORLD_SIZE,
    MASTER_ADDR,
    MASTER_PORT,
    RESTART_COUNT,
    STORE,
    TIMEOUT,
    TOKEN,
    WARN_AFTER,
)
from ..errors import CommError, CommTimeout, OnefoldError, user_line
from . import provenance
from .device_claims import VERDICT, address, claim, each_has_one
from .exit_guard import ExitGuard
from .named_groups import give_time, group_named, shake_hands
from .network_interface import choose_interface
from .pending import Counter, Pending
from .rank_error import RankError, close_connections, post_error, posted_errors
from .rank_state import RankStates, end_key, job_keys
from .watchdog import BECAUSE_OF_ANOTHER, Watchdog

R = TypeVar("R")

# How long the process that serves the store stays for the others, and how long leaving may take.
_LAST_SECONDS = 10.0
# How soon a wait in the store notices that a rank will not come.
_GLANCE = 0.25
_BOTH = "cpu:gloo,cuda:nccl"
# A store in a file looks every 10 ms; whoever comes soon is met sooner, after pauses that double.
_FIRST_PAUSE = 1e-4
_STORE_PAUSE = 1e-2


@dataclass(frozen=True, slots=True)
class Group:
    """A process group, as seen by a caller who lists its ranks in an order of his own."""

    handle: dist.ProcessGroup | None  # None for the group of all ranks
    counter: Counter
    place: tuple[int, ...]  # place[i]: where ranks[i] sits in the sorted group
    me: int  # where the own rank is in ranks


class Holder(Protocol):
    """What holds communicators of the process groups, such as CUDA graphs."""

    def release(self) -> None:
        """Let go of them."""


def _choose_device(rank: int) -> int:
    """Make the GPU of this process torch's current one; its index."""
    local = LOCAL_RANK.read()
    index = (rank if local is None else local) % torch.cuda.device_count()
    torch.cuda.set_device(index)
    return index


def _connect_devices(handle: dist.ProcessGroup | None) -> None:
    """Let NCCL connect all ranks, which it does in their first collective.

    They must all be there then, and later the group of all ranks carries messages that only some
    ranks send. (Binding the group to the device would connect it too, but then groups of fewer
    ranks are split from it, which again needs all ranks.)
    """
    dist.all_reduce(torch.zeros(1, device="cuda"), group=handle)


class Connection:
    """The store, the process groups and the watch of one process.

    Making it meets all processes of the world: CommTimeout names those that did not come within
    ONEFOLD_TIMEOUT seconds. Groups of fewer ranks are made when first used, by their members
    only; as every rank runs the same collectives in the same order, that cannot deadlock.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.timeout = TIMEOUT.read()
        self.check = provenance.state.on = CHECK.read()
        self.epoch = 0  # how many errors of ranks this process left its groups for
        self._limit = timedelta(seconds=self.timeout)
        self._foreign = dist.is_initialized()
        self._serves = rank == 0 and not (STORE.read() or AGENT_STORE.read() or self._foreign)
        self._seats: dict[tuple[int, ...], Group] = {}
        self._groups: dict[tuple[int, ...], tuple[dist.ProcessGroup | None, Counter]] = {}
        self._pairs: dict[int, Counter] = {}
        self.compared_keys: dict[str, tuple[str, ...]] = {}  # set to compare, and not yet deleted
        self._messages: dist.ProcessGroup | None = None  # the group that messages go through
        # What holds NCCL's communicators, which cannot be closed before it lets go of them.
        self.holders: WeakSet[Holder] = WeakSet()
        self.store = self._open(self._serves)
        self._states = RankStates(self.store)
        self._states.begin(rank)
        # A clone has its own connection: the watch must not wait for a lock of the main thread.
        self.watch = Watchdog(self._open(False), rank, self.timeout, WARN_AFTER.read())
        self.staged = True  # whether cuda tensors travel through host memory
        self._backend: str | None = None  # of new groups; None is that of the group of all ranks
        self._join()
        self._failed = False  # whether an exception ends the program
        self._previous_hook = sys.excepthook
        sys.excepthook = self._note_failure
        self._guard = ExitGuard(2 * _LAST_SECONDS)
        atexit.register(self.close)

    def _open(self, serve: bool) -> Store:
        token, start = TOKEN.read(), RESTART_COUNT.read()
        if file := STORE.read():
            return job_keys(FileStore(file), token, start)
        host, port = MASTER_ADDR.read(), MASTER_PORT.read()
        try:
            store = TCPStore(
                host, port, None, serve, self._limit, wait_for_workers=False, multi_tenant=True
            )
        except RuntimeError as error:
            what = "could not listen on" if serve else "could not reach rank 0 or the launcher at"
            raise CommTimeout(
                f"rank {self.rank} {what} {host}:{port} within {self.timeout:g} s ({error}). "
                "Check MASTER_ADDR and MASTER_PORT, and that no other job uses the port; the "
                "launcher's options --master_addr and --master_port set them."
            ) from None
        return job_keys(store, token, start)

    def _join(self) -> None:
        """Make the group of all ranks."""
        counter = self.watch.counter("all", tuple(range(self.size)))
        pending = Pending("connecting", "", (counter,))
        if not self._foreign:
            self._groups[counter.ranks] = (None, counter)
            counter.seq += 1
            self.meet(pending, lambda: self._make_world(pending))
            return
        backends = dist.get_backend_config()
        self.staged = "nccl" not in backends
        if not self.staged:
            self._backend = _BOTH  # theirs may be for cuda alone
            self.watch.device = _choose_device(self.rank)
        if "gloo" in backends or not self.staged:
            # The program's own connections must stay open whatever happens to ours.
            self._messages = self._new_group(counter.ranks)[0]
        else:
            self._groups[counter.ranks] = (None, counter)
        if not self.staged:
            self.meet(pending, lambda: _connect_devices(self._messages))

    def _make_world(self, pending: Pending) -> None:
        cuda = DEVICE.read() != "cpu" and torch.cuda.is_available()
        if cuda:
            self.watch.device = _choose_device(self.rank)
        claim(self.store, self.size, address(self.watch.device) if cuda else "")
        self.wait_for_keys([VERDICT], pending)
        nccl = each_has_one(self.store)
        if self.size != LOCAL_WORLD_SIZE.read():
            choose_interface(MASTER_ADDR.read())
        dist.init_process_group(
            _BOTH if nccl else "gloo",
            store=PrefixStore("world", self.store),
            rank=self.rank,
            world_size=self.size,
            timeout=self._limit,
        )
        if nccl:
            self.staged = False
            give_time(None, 2 * self._limit)
            _connect_devices(None)
        shake_hands(None)

    def meet(self, pending: Pending, make: Callable[[], R]) -> R:
        """What `make()` gives, which may wait for other ranks; `pending` describes the wait."""
        self.watch.pending = pending
        try:
            return make()
        except RuntimeError as error:
            raise self.explain(pending, error) from None
        finally:
            self.watch.pending = None

    def group(self, ranks: tuple[int, ...]) -> Group:
        """The group of `ranks`, which must include the own rank; made at the first call."""
        found = self._seats.get(ranks)
        if found is None:
            ordered = tuple(sorted(ranks))
            handle, counter = self._groups.get(ordered) or self._new_group(ordered)
            place = tuple(ordered.index(rank) for rank in ranks)
            found = Group(handle, counter, place, ranks.index(self.rank))
            self._seats[ranks] = found
        return found

    def _new_group(self, ordered: tuple[int, ...]) -> tuple[dist.ProcessGroup, Counter]:
        counter = self.watch.counter(",".join(map(str, ordered)), ordered, self.epoch)
        counter.seq += 1
        pending = Pending("connecting", "", (counter,))
        handle = self.meet(pending, lambda: self._connect(pending, counter))
        self._groups[ordered] = (handle, counter)
        return handle, counter

    def _connect(self, pending: Pending, counter: Counter) -> dist.ProcessGroup:
        # torch's own wait could not be ended by the error of a rank that does not come.
        keys = {rank: f"meet/{counter.key}/{rank}" for rank in counter.ranks}
        self.store.set(keys[self.rank], "")
        self.wait_for_keys(list(keys.values()), pending)
        name = f"onefold_{counter.epoch}_" + "_".join(map(str, counter.ranks))
        handle = group_named(name, counter.ranks, self._limit, self._backend)
        if not self.staged:
            give_time(handle, 2 * self._limit)
        return handle

    def wait_for_keys(self, keys: list[str], pending: Pending, limit: float | None = None) -> None:
        """Wait until the store has all keys; a RuntimeError, to `explain`, if it cannot succeed.

        Notices within moments that a rank that `pending` waits for has ended or left its groups.
        Waits for `limit` seconds, by default ONEFOLD_TIMEOUT.
        """
        deadline = time.monotonic() + (self.timeout if limit is None else limit)
        pause = _FIRST_PAUSE
        while pause < _STORE_PAUSE:
            if self.store.check(keys):
                return
            time.sleep(pause)
            pause *= 2
        while True:
            left = deadline - time.monotonic()
            try:
                self.store.wait(keys, timedelta(seconds=max(min(left, _GLANCE), 0.001)))
            except RuntimeError as error:
                ended = self._ended(pending)
                left_groups = posted_errors(self.store, pending.counters)
                if self.store.check(keys):
                    return  # who sets its key before it goes was here
                if ended:
                    raise RuntimeError("a peer has ended") from error
                if left_groups or left <= _GLANCE:
                    raise
            else:
                return

    def is_in_vain(self, pending: Pending) -> bool:
        """Whether a rank that `pending` waits for has ended or left its groups."""
        return self._ended(pending) or bool(posted_errors(self.store, pending.counters))

    def _ended(self, pending: Pending) -> bool:
        """Whether a process that `pending` waits for has ended."""
        ranks = {rank for counter in pending.counters for rank in counter.ranks} - {self.rank}
        if self._states.any_ended() and any(self._states.ending(rank) for rank in ranks):
            return True
        machine = LOCAL_WORLD_SIZE.read() or 1
        first = self.rank - (LOCAL_RANK.read() or 0)
        return any(
            self._states.was_killed(rank) for rank in ranks & {*range(first, first + machine)}
        )

    def explain(self, pending: Pending, error: Exception) -> OnefoldError:
        """The error to raise when a wait in `pending` failed with `error`.

        If another rank left the groups because of an error, that one; this process then leaves,
        too.
        """
        errors = posted_errors(self.store, pending.counters)
        if not errors:
            return self.watch.explain(pending, error)
        first, *others = errors
        if any(counter.epoch == self.epoch for counter in pending.counters):
            self._leave(first)
        return first.raised_again(self.rank, pending.describe(), user_line(), others)

    def fail(self, error: OnefoldError) -> None:
        """Report to the others an error that this rank raises alone, as far as it knows."""
        error.raised_on = self.rank
        self._leave(RankError.of(error, self.rank))

    def _leave(self, error: RankError) -> None:
        """End all groups because of an error; new ones are made in the next epoch."""
        post_error(self.store, self.epoch, self.rank, error)
        for ranks, (handle, _) in self._groups.items():
            if handle is not None or not self._foreign:
                close_connections(handle, ranks, self.rank)
            if handle is not None and self.staged:  # NCCL's own would wait for the device
                dist.destroy_process_group(handle)
        self._seats.clear()
        self._groups.clear()
        self._pairs.clear()
        self.compared_keys.clear()
        self.watch.forget_counters()
        self.epoch += 1

    def message_group(self, peer: int) -> dist.ProcessGroup | None:
        """The process group that carries messages to and from `peer`; None is that of all ranks.

        In later epochs one of the two alone, since the others may come late.
        """
        if not self.epoch:
            return self._messages
        low, high = sorted((self.rank, peer))
        return None if low == high else self.group((low, high)).handle

    def pair(self, peer: int) -> Counter:
        """The counter of point-to-point exchanges with `peer`."""
        counter = self._pairs.get(peer)
        if counter is None:
            low, high = sorted((self.rank, peer))
            counter = self.watch.counter(f"{low}~{high}", (low, high), self.epoch)
            self._pairs[peer] = counter
        return counter

    def _note_failure(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Post for the others why this process ends, then report the error as usual."""
        self._failed = True
        text = (str(error).splitlines() or [""])[0]
        frames = [frame for frame, _ in walk_tb(trace)]
        at = user_line(frames[-1] if frames else None)
        secondary = isinstance(error, OnefoldError) and error.raised_on not in (None, self.rank)
        how = BECAUSE_OF_ANOTHER if secondary or isinstance(error, CommError) else "failed"
        self.watch.end(f"{how}, {kind.__name__}: {text}, at {at}")
        self._previous_hook(kind, error, trace)

    def abandon(self) -> None:
        """Forget the connection in a forked process, which has none of the threads that serve it.

        Nothing is closed, and nothing freed: that would wait for those threads.
        """
        atexit.unregister(self.close)
        sys.excepthook = self._previous_hook
        world = dist.group.WORLD if dist.is_initialized() else None
        for kept in (self, world, *(handle for handle, _ in self._groups.values())):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))

    def close(self) -> None:
        """Leave the others: end the watch, destroy the groups, let the store go.

        Runs by itself when Python ends. Groups must be gone before that, because their threads
        would abort the process if they touched a Python object later.
        """
        atexit.unregister(self.close)
        sys.excepthook = self._previous_hook
        if not (self.staged or self._failed):
            # What runs on a device may wait for a rank that comes later; the watch still looks.
            with contextlib.suppress(RuntimeError):
                torch.cuda.synchronize()
        # A peer that failed may leave a group that cannot be destroyed; never hang on exit.
        with self._guard:
            self._close()

    def _close(self) -> None:
        self.watch.end("ended without an error")
        self.watch.stop()
        for holder in [*self.holders]:
            holder.release()
        if not self._foreign:
            if self._serves:
                ends = [end_key(rank) for rank in range(self.size)]
                with contextlib.suppress(RuntimeError):
                    self.store.wait(ends, timedelta(seconds=_LAST_SECONDS))
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()
        self._seats.clear()
        self._groups.clear()
