"""Posted checksums: ranks compare what they are about to do by sums in the key-value store."""

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
# A key of the store counts ranks in its high bits, and adds up their checksums below.
_NUMBER_BYTES = 4
_COUNTED_FROM = 47
_LATE = b"late"  # the verdict of a rank that waited too long
ADVICE = (
    "Every rank must run the same operations in the same order; look for a branch that depends on "
    "the rank, or on data that differs between ranks."
)


class PostedChecksum(NamedTuple):
    """The checksum that a rank posted, and whether those of all ranks are equal."""

    counter: Counter  # as it was then
    key: str
    number: int
    same: bool | None  # None: some ranks had not posted theirs

    @property
    def verdict(self) -> str:
        """The key under which the last rank writes whether all are equal."""
        return f"{self.key}/same"

    def judge(self, total: int) -> bool | None:
        """Whether all are equal, given the sum so far; None while ranks are missing."""
        count = len(self.counter.ranks)
        if total >> _COUNTED_FROM != count:
            return None
        return total - (count << _COUNTED_FROM) == count * self.number


def post_checksum(link: Connection, counter: Counter, kind: str, text: str) -> PostedChecksum:
    """Post the checksum of a text for the other ranks of a counter, without waiting for theirs.

    `kind` is the collective that errors name. Takes two requests to the store, however many ranks
    there are.
    """
    digest = blake2b(text.encode(), digest_size=_NUMBER_BYTES).digest()
    number = int.from_bytes(digest, "big")
    posted = PostedChecksum(replace(counter), f"agree/{counter.key}/{counter.seq}", number, None)

    def post() -> PostedChecksum:
        same = posted.judge(link.store.add(posted.key, (1 << _COUNTED_FROM) + number))
        if same is not None:
            if link.store.compare_set(posted.verdict, "", str(same)) == _LATE:
                raise RuntimeError("a peer has stopped waiting")
            # Every rank has posted this one, so every rank has read the one before.
            for old in link.compared_keys.get(counter.key, ()):
                link.store.delete_key(old)
        link.compared_keys[counter.key] = (posted.key, posted.verdict)
        return posted._replace(same=same)

    return link.meet(Pending(kind, current_op.name, (posted.counter,)), post)


def all_equal(link: Connection, kind: str, posted: PostedChecksum) -> bool:
    """Whether all ranks posted the same checksum; waits for those that have not yet."""
    if posted.same is not None:
        return posted.same
    pending = Pending(kind, current_op.name, (posted.counter,))

    def ask() -> bool:
        same = posted.judge(link.store.add(posted.key, 0))
        if same is None:
            _wait(link, posted, pending)
            found = link.store.get(posted.verdict)
            if found == _LATE:
                raise RuntimeError("timed out")
            same = found == b"True"
        return same

    try:
        return link.meet(pending, ask)
    except CommTimeout:
        link.watch.pending = pending  # the others give up too, and may still ask where it was
        raise


def _wait(link: Connection, posted: PostedChecksum, pending: Pending) -> None:
    """Wait for the verdict, unless a rank has gone on without comparing."""
    verdict, seq = posted.verdict, posted.counter.seq
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
            continue  # one rank asks for all
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
