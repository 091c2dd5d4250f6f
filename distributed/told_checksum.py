"""Ranks tell each other, by a checksum in the store, what they are about to do."""

from __future__ import annotations

import time
from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple

from ..errors import CommTimeout, RankMismatch, user_line
from .connection import Connection
from .pending import Counter, Pending
from .wait import current_op

# How long a rank waits for others to compare before it asks where they are; then twice as long.
_PATIENCE = 2.0
# A key of the store counts ranks in its high bits, and adds up their numbers below.
_NUMBER_BYTES = 4
_COUNTED_FROM = 47
_LATE = b"late"  # the verdict of a rank that waited too long
ADVICE = (
    "Every rank must run the same operations in the same order; look for a branch that depends on "
    "the rank, or on data that differs between ranks."
)


class Told(NamedTuple):
    """What a rank has told the others by a checksum, and whether they all said the same."""

    counter: Counter  # as it was then
    key: str
    number: int
    same: bool | None  # None: some had not told theirs

    @property
    def verdict(self) -> str:
        """The key under which the last to tell says whether all are the same."""
        return f"{self.key}/same"

    def judge(self, total: int) -> bool | None:
        """Whether all said the same, if a sum has what each of them told."""
        count = len(self.counter.ranks)
        if total >> _COUNTED_FROM != count:
            return None
        return total - (count << _COUNTED_FROM) == count * self.number


def tell(link: Connection, counter: Counter, kind: str, text: str) -> Told:
    """Tell the other ranks of a counter what this one says, without waiting for theirs.

    `kind` is the collective that errors name. Asks the store twice, however many ranks there are.
    """
    digest = blake2b(text.encode(), digest_size=_NUMBER_BYTES).digest()
    number = int.from_bytes(digest, "big")
    told = Told(replace(counter), f"agree/{counter.key}/{counter.seq}", number, None)

    def post() -> Told:
        same = told.judge(link.store.add(told.key, (1 << _COUNTED_FROM) + number))
        if same is not None:
            if link.store.compare_set(told.verdict, "", str(same)) == _LATE:
                raise RuntimeError("a peer did not wait any longer")
            # All have come here, so all have looked at the one before.
            for old in link.compared_keys.get(counter.key, ()):
                link.store.delete_key(old)
        link.compared_keys[counter.key] = (told.key, told.verdict)
        return told._replace(same=same)

    return link.meet(Pending(kind, current_op.name, (told.counter,)), post)


def answer(link: Connection, kind: str, told: Told) -> bool:
    """Whether every rank says what this one told; waits for those that have not come so far."""
    if told.same is not None:
        return told.same
    pending = Pending(kind, current_op.name, (told.counter,))

    def ask() -> bool:
        same = told.judge(link.store.add(told.key, 0))
        if same is None:
            _wait(link, told, pending)
            found = link.store.get(told.verdict)
            if found == _LATE:
                raise RuntimeError("timed out")
            same = found == b"True"
        return same

    try:
        return link.meet(pending, ask)
    except CommTimeout:
        link.watch.pending = pending  # the others give up too, and may still ask where it was
        raise


def _wait(link: Connection, told: Told, pending: Pending) -> None:
    """Wait for the verdict, unless a rank has gone on without comparing."""
    verdict, seq = told.verdict, told.counter.seq
    deadline = time.monotonic() + link.timeout
    patience = _PATIENCE
    suspects: set[int] = set()
    asks = f"{verdict}/asks"
    while True:
        left = deadline - time.monotonic()
        try:
            link.wait_for_keys([verdict], pending, min(patience, left))
        except RuntimeError:
            if link.is_in_vain(pending):
                raise
            if left <= patience:
                link.store.compare_set(verdict, "", _LATE.decode())  # then all give up at one time
                raise
        else:
            link.store.delete_key(asks)
            return
        if link.store.compare_set(asks, "", str(link.rank)) != str(link.rank).encode():
            continue  # one asks for all
        report = link.watch.ask(pending)
        gone = {
            rank
            for rank, compared in report.compared.items()
            if rank in report.arrived and compared < seq
        }
        if gone & suspects and not link.store.check([verdict]):
            rank = min(gone & suspects)
            error = RankMismatch(
                f"ranks {link.rank} and {rank} are at different operations:\n"
                f"  rank {link.rank}: {pending.describe()}, at {user_line()}\n"
                f"  rank {rank}: {report.arrived[rank]}\n"
                f"Rank {rank} went on as before, but rank {link.rank} did something else. {ADVICE}"
            )
            link.fail(error)
            raise error
        suspects = gone
        if not gone:
            patience *= 2  # the others are late; do not ask them too often
