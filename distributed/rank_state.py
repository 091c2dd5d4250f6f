"""What ranks say of themselves in the key-value store: where they are, and how they ended.

Ranks read it of each other when a wait fails, and the launcher when a rank has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass

from torch._C._distributed_c10d import PrefixStore, Store

_ASKED = "ask"
_ANY_END = "end/any"


def end_key(rank: int) -> str:
    """The key under which it is said how `rank` ended."""
    return f"end/{rank}"


def job_keys(store: Store, token: str, start: int) -> Store:
    """The part of `store` that belongs to the ranks of one start of the job with this token."""
    return PrefixStore(f"onefold/{token}/{start}", store)


def _stat(pid: int) -> list[str]:
    """What Linux says of a process, from its state on."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


def _machine() -> str:
    """This machine, since it was started, and the pids that this process sees."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"


def _was_killed(process: str) -> bool:
    """Whether a process, as `begin` tells it, is known to be gone."""
    pid, start, machine = process.split(maxsplit=2)
    try:
        if machine != _machine():
            return False
        os.kill(int(pid), 0)
        state, *rest = _stat(int(pid))
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return state in "ZX" or rest[18] != start


@dataclass(frozen=True, slots=True)
class RankState:
    """Where a rank's main thread was when it answered the question with the number `asked`."""

    asked: int
    at: str
    progress: dict[str, int]  # the values of its counters, by key
    compared: dict[str, int]  # the last ones that it compared, by key


class RankStates:
    """The states and ends of all ranks. Every method raises RuntimeError when the store is gone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._processes: dict[int, str] = {}

    def ask(self) -> int:
        """Ask all ranks where they are; the number of the question."""
        return self._store.add(_ASKED, 1)

    def last_asked(self) -> int:
        """The number of the last question."""
        return self._store.add(_ASKED, 0)

    def post(self, rank: int, state: RankState) -> None:
        """Say where `rank` is."""
        self._store.set(f"state/{rank}", json.dumps(asdict(state)))

    def read(self, rank: int) -> RankState | None:
        """What `rank` said last, if anything."""
        key = f"state/{rank}"
        if not self._store.check([key]):
            return None
        return RankState(**json.loads(self._store.get(key)))

    def end(self, rank: int, how: str) -> None:
        """Leave word how `rank` ended; the first word counts."""
        self._store.compare_set(end_key(rank), "", how)
        self._store.set(_ANY_END, "")

    def ending(self, rank: int) -> str:
        """How `rank` ended; empty while nothing is known of that."""
        if not self._store.check([end_key(rank)]):
            return ""
        return self._store.get(end_key(rank)).decode()

    def note(self, rank: int, what: str) -> None:
        """Say what is known of a rank that cannot answer itself; empty when it can again."""
        self._store.set(f"note/{rank}", what)

    def noted(self, rank: int) -> str:
        """What is known of a rank that cannot answer itself."""
        key = f"note/{rank}"
        return self._store.get(key).decode() if self._store.check([key]) else ""

    def first_to_warn(self, rank: int, counter: str, seq: int) -> bool:
        """Whether `rank` is the first to warn of this wait; the others need not."""
        first = self._store.compare_set(f"warned/{counter}/{seq}", "", str(rank))
        return first == str(rank).encode()

    def begin(self, rank: int) -> None:
        """Say which process is `rank`, where others can look after it."""
        with contextlib.suppress(OSError):
            self._store.set(
                f"process/{rank}", f"{os.getpid()} {_stat(os.getpid())[19]} {_machine()}"
            )

    def was_killed(self, rank: int) -> bool:
        """Whether the process of `rank` is gone, as far as this machine knows."""
        if rank not in self._processes:
            key = f"process/{rank}"
            there = self._store.check([key])
            self._processes[rank] = self._store.get(key).decode() if there else ""
        process = self._processes[rank]
        return bool(process) and _was_killed(process)

    def any_ended(self) -> bool:
        """Whether any rank ended: one question, however many ranks there are."""
        return self._store.check([_ANY_END])
