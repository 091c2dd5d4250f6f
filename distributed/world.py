"""The world: all ranks of the job, and which of them this process owns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from ..env import RANK, WORLD_SIZE
from ..errors import CommError, OnefoldError, OnefoldRuntimeError, OnefoldValueError, PlacementError
from .connection import Connection

_SHOWN = 16  # ranks that a text lists one by one


def shortened(ranks: Sequence[int]) -> str:
    """A list of ranks as text; a long one of neighbors by its ends.

    >>> shortened(range(4)), shortened(range(8, 72))
    ('[0, 1, 2, 3]', '[8, 9, ..., 71]')
    """
    first, count = ranks[0] if len(ranks) else 0, len(ranks)
    if count > _SHOWN and all(rank == first + i for i, rank in enumerate(ranks)):
        return f"[{first}, {first + 1}, ..., {first + count - 1}]"
    return str(list(ranks))


class World:
    """All ranks of the job, seen from one process.

    A launched world (`rank` is a number) has one process per rank. In a virtual world (`rank` is
    None) this process owns every rank, and the world grows when a placement names a new one.

    `joins` says whether there are other processes to connect to; a World made only to ask what
    some rank owns leaves it False. In a `planned` world no rank holds data, only shapes.

    Example:
        >>> World(rank=2, size=4).owned((0, 2))
        (1,)
        >>> World(rank=None, size=1).owned((0, 2))
        (0, 1)
    """

    __slots__ = (
        "__weakref__", "_connection", "_forked", "_joins", "launched", "planned", "rank", "size",
    )  # fmt: skip

    def __init__(
        self, rank: int | None, size: int, joins: bool = False, planned: bool = False
    ) -> None:
        if rank is not None and not 0 <= rank < size:
            raise OnefoldValueError(
                f"rank {rank} is not in a world of {size} ranks: RANK must be 0 to WORLD_SIZE - 1. "
                "Start the program with `python -m onefold.distributed.launch`, which sets both."
            )
        self.rank = rank
        self.size = size
        self.launched = rank is not None
        self.planned = planned
        self._joins = joins
        self._forked = False
        self._connection: Connection | None = None

    def __repr__(self) -> str:
        """`World(rank 2 of 4)`, `World(virtual, 4 ranks)` or `World(planned, 4 ranks)`."""
        if self.planned:
            return f"World(planned, {self.size} ranks)"
        if self.launched:
            return f"World(rank {self.rank} of {self.size})"
        return f"World(virtual, {self.size} ranks)"

    @property
    def joins(self) -> bool:
        """Whether there are other processes, to which this one is or can be connected."""
        return self._joins

    @property
    def connected(self) -> bool:
        """Whether this process is connected to the others now."""
        return self._connection is not None

    def owns(self, rank: int) -> bool:
        """Whether this process holds the shards of `rank`."""
        return self.rank is None or rank == self.rank

    def owned(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """The positions in `ranks` that this process owns, in increasing order.

        Virtual: all of them. Launched: the position of the own rank, or none.
        """
        if self.rank is None:
            return tuple(range(len(ranks)))
        if self.rank in ranks:
            return (ranks.index(self.rank),)
        return ()

    def ensure(self, ranks: tuple[int, ...]) -> None:
        """Make sure that the world has `ranks`; placements call this when they are made.

        A virtual world grows. A launched world must have them already, else PlacementError; the
        first call connects the processes, because a placement is made on every process, members
        or not, and so no process is missing when others start to communicate.
        """
        highest = max(ranks, default=0)
        if self.rank is None:
            self.size = max(self.size, highest + 1)
            return
        if highest >= self.size and self.planned:
            raise PlacementError(
                f"ranks {shortened(ranks)} include {highest}, but flow.planning(size={self.size}) "
                f"plans a cluster with the ranks 0 to {self.size - 1}. Name fewer ranks, or plan "
                "more of them."
            )
        if highest >= self.size:
            raise PlacementError(
                f"ranks {list(ranks)} include {highest}, but this is rank {self.rank} of a world "
                f"of {self.size}: ranks 0 to {self.size - 1} exist. Name fewer ranks, or launch "
                f"more processes: `python -m onefold.distributed.launch --nproc_per_node "
                f"{highest + 1} ...` (or fewer on each of several machines, with --nnodes)."
            )
        if self._joins and self._connection is None and self.size > 1:
            self.connection()

    def connection(self) -> Connection:
        """What connects this process to the others, made at the first call.

        OnefoldRuntimeError in a world that has no other processes.
        """
        if self._connection is None:
            if self.planned:
                raise OnefoldRuntimeError(
                    "data of other ranks was asked for inside flow.planning(), where no rank holds "
                    "any: ask for plans there, and communicate outside of the block."
                )
            if self.rank is None:
                raise OnefoldRuntimeError(
                    "a collective between processes was asked for in a virtual world, where one "
                    "process owns every rank: use tensor arithmetic on the shards instead."
                )
            if self._forked:
                raise OnefoldRuntimeError(
                    "a collective was asked for in a process that was forked from rank "
                    f"{self.rank} and has no connection to the other ranks. Communicate in the "
                    "rank itself; processes that it forks, such as the workers of a data loader, "
                    "may use local tensors."
                )
            if not self._joins:
                raise OnefoldRuntimeError(
                    f"a collective was asked for on rank {self.rank}, which has no other processes "
                    "to talk to: this world was left, or is only seen from that rank, so that "
                    "plans can be made here, but not run."
                )
            self._connection = Connection(self.rank, self.size)
        return self._connection

    def report_error(self, error: OnefoldError) -> None:
        """Let the other ranks raise `error` too, where they need this one to go on.

        For errors that depend on the data of global tensors, which other ranks may not have. Does
        nothing for an error that came from another rank, or of communication itself.
        """
        link = self._connection
        if link is not None and error.raised_on is None and not isinstance(error, CommError):
            link.fail(error)

    def forked(self) -> None:
        """Let go of the connection, which belongs to the process that this one was forked from."""
        if self._joins:
            self._joins, self._forked = False, True
            if self._connection is not None:
                self._connection.abandon()
                self._connection = None

    def disconnect(self) -> None:
        """Disconnect from the other processes permanently; happens when the program ends."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._joins = False


_world: World | None = None
_listeners: list[Callable[[], None]] = []
_in_fork = False  # whether this process was forked from one that had imported this module


def world() -> World:
    """The world of this process, read from the environment at the first call.

    It is launched when RANK and WORLD_SIZE are set, else virtual with one rank.
    """
    global _world
    if _world is None:
        made = _from_environment()
        if _in_fork:
            made.forked()
        if _world is None:  # else another thread has made one meanwhile
            _world = made
    return _world


def _from_environment() -> World:
    rank, size = RANK.read(), WORLD_SIZE.read()
    if rank is None or size is None:
        if rank is not None or size is not None:
            found, missing = ("RANK", "WORLD_SIZE") if size is None else ("WORLD_SIZE", "RANK")
            raise OnefoldValueError(
                f"the environment sets {found} but not {missing}: a launched process needs both. "
                f"Unset {found} to run alone, or use `python -m onefold.distributed.launch`."
            )
        return World(None, 1)
    return World(rank, size, joins=True)


def on_world_change(listener: Callable[[], None]) -> None:
    """Call `listener` whenever the process's world is replaced.

    For caches that hold what depends on the world. Worlds are replaced by `virtual_world`,
    `seen_from`, `planned_world` and `forget_world` only; a virtual world that grows is still the
    same world.
    """
    _listeners.append(listener)


def _replace(new: World | None) -> None:
    global _world
    _world = new
    for listener in _listeners:
        listener()


@contextmanager
def _temporarily(new: World) -> Iterator[World]:
    old = _world
    _replace(new)
    try:
        yield new
    finally:
        _replace(old)


def virtual_world(size: int = 1) -> AbstractContextManager[World]:
    """A fresh virtual world for the body of a `with`; then the old world is back.

    Example:
        >>> with virtual_world() as w:
        ...     w.ensure((0, 3))
        ...     w.size
        4
    """
    return _temporarily(World(None, size))


def seen_from(rank: int, size: int) -> AbstractContextManager[World]:
    """A launched world as one of its ranks sees it, for the body of a `with`.

    There are no other processes: shapes, plans and ownership can be asked for, data cannot move.

    Example:
        >>> with seen_from(rank=5, size=4096) as w:
        ...     w.owned((4, 5, 6))
        (1,)
    """
    return _temporarily(World(rank, size))


def planned_world(size: int) -> AbstractContextManager[World]:
    """A launched world of which only plans are made, for the body of a `with`.

    It is as rank 0 sees it, and placements name any of its ranks. No shard has memory.

    Example:
        >>> with planned_world(4096) as w:
        ...     w
        World(planned, 4096 ranks)
    """
    return _temporarily(World(0, size, planned=True))


def forget_world() -> None:
    """Read the environment again at the next `world()`.

    For a process that was forked from one with a world of its own: the parent's connection, if
    any, is dropped without being closed.
    """
    global _in_fork
    _in_fork = False
    _replace(None)


def _after_fork() -> None:
    global _in_fork
    _in_fork = True
    if _world is not None:
        _world.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
