"""An error that one rank raised, and what ranks raise that cannot continue without it.

An error that depends on data may be raised on one rank alone. That rank says so in the key-value
store and closes the connections of its process groups. Ranks that wait for it notice immediately,
read the error, raise it too and do the same: the error travels along the waits, and a program
without errors pays nothing. Every such error begins a new epoch, in which groups are rebuilt.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from ..errors import OnefoldError, OnefoldRuntimeError
from .pending import Counter

_AT_ONCE = timedelta(milliseconds=1)
# No message of ours has a tag.
_UNUSED_TAG = 77

_GOES_ON = (
    "The program can go on if every rank catches this error in the same step of its loop. A rank "
    "raises it where it next needs a rank that has, so let a step that may fail end with something "
    "that communicates, such as loss.item(). What ranks did before stays done; ONEFOLD_CHECK=1 "
    "finds ranks that go on at different places."
)
_ENDS = "Its device waits for that rank and cannot be interrupted, so this process ends."


@dataclass(frozen=True, slots=True)
class RankError:
    """An error as it travels: the rank that raised it, its classes (nearest first), its text."""

    rank: int
    classes: tuple[str, ...]
    text: str

    @staticmethod
    def of(error: OnefoldError, rank: int) -> RankError:
        """`error`, raised on `rank`."""
        family = [kind for kind in type(error).__mro__ if issubclass(kind, OnefoldError)]
        return RankError(rank, tuple(_name(kind) for kind in family), str(error))

    def to_json(self) -> str:
        """The inverse of `from_json`."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> RankError:
        """The inverse of `to_json`."""
        fields = json.loads(text)
        return RankError(fields["rank"], tuple(fields["classes"]), fields["text"])

    def raised_again(
        self,
        rank: int,
        doing: str,
        line: str,
        others: Sequence[RankError] = (),
        on_device: bool = False,
    ) -> OnefoldError:
        """The same error for another rank, which met it `doing` something at `line`.

        `others` are further errors that it found. An unknown class becomes its nearest known base.
        What is done `on_device` cannot be left.
        """
        known = {_name(kind): kind for kind in _family(OnefoldError)}
        kind = next((known[name] for name in self.classes if name in known), OnefoldRuntimeError)
        too = [
            f"\n  rank {other.rank} failed too: {other.text.splitlines()[0]}" for other in others
        ]
        error = kind(
            f"rank {self.rank}: {self.text}{''.join(too)}\n"
            f"  raised again on rank {rank}, which cannot complete {doing}, at {line}, without "
            f"rank {self.rank}. {_ENDS if on_device else _GOES_ON}"
        )
        error.raised_on = self.rank
        return error


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _family(kind: type[OnefoldError]) -> Iterator[type[OnefoldError]]:
    yield kind
    for derived in kind.__subclasses__():
        yield from _family(derived)


def _key(epoch: int, rank: int | str = "any") -> str:
    return f"left/{epoch}/{rank}"


def post_error(store: Store, epoch: int, rank: int, error: RankError) -> None:
    """Post for the others that `rank` leaves the groups of `epoch` because of `error`."""
    with contextlib.suppress(RuntimeError):  # the store is gone, and with it the job
        store.set(_key(epoch, rank), error.to_json())
        store.set(_key(epoch), "")


def posted_errors(store: Store, counters: Sequence[Counter]) -> list[RankError]:
    """Why members of the counters' groups left them, one entry per rank that raised first."""
    found: dict[int, RankError] = {}
    with contextlib.suppress(RuntimeError):
        if not any(store.check([_key(epoch)]) for epoch in {each.epoch for each in counters}):
            return []  # one question, however many ranks there are
        for counter in counters:
            for rank in counter.ranks:
                key = _key(counter.epoch, rank)
                if store.check([key]):
                    error = RankError.from_json(store.get(key))
                    found[error.rank] = error
    return [found[rank] for rank in sorted(found)]


def close_connections(handle: dist.ProcessGroup | None, ranks: Sequence[int], rank: int) -> None:
    """Close this process's gloo connections of a group, so that no member waits for it.

    Gloo closes all connections of a group when one receive in it was not served in time.
    """
    for peer in ranks:
        if peer != rank:
            with contextlib.suppress(RuntimeError):
                unused = torch.empty(1, device="cpu")
                work = dist.irecv(unused, peer, group=handle, tag=_UNUSED_TAG)
                assert work is not None
                work.wait(_AT_ONCE)
