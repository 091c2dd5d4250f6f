"""Before a collective the ranks compare what they are about to do, unless all expect the same."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from itertools import combinations
from typing import NamedTuple

import torch

from ..errors import CommTimeout, RankMismatch, user_line
from . import origins
from .connection import Connection
from .pending import Counter, Pending
from .wait import current_op

# How long a rank waits for others to compare before it asks where they are; then twice as long.
_PATIENCE = 2.0
# A key of the store counts ranks in its high bits, and adds up their numbers below.
_NUMBER_BYTES = 4
_COUNTED_FROM = 47
# With ONEFOLD_CHECK=1: as many collectives of a group that were expected are compared together.
_TOGETHER = 32
_LATE = b"late"  # the verdict of a rank that waited too long
_ADVICE = (
    "Every rank must run the same operations in the same order; look for a branch that depends on "
    "the rank, or on data that differs between ranks."
)


@dataclass(frozen=True)
class Said:
    """What a rank is about to do."""

    what: str  # the collective with all that must be equal
    ranks: tuple[int, ...] = ()  # in the order of their pieces
    # The forms of the tensors, by the rank that they go to or come from.
    sends: Mapping[int, Sequence[str]] = field(default_factory=dict)
    recvs: Mapping[int, Sequence[str]] = field(default_factory=dict)
    decided: bool = False  # whether ranks that agree must send what the others expect
    op: str = ""
    line: str = ""
    origin: int = 0  # of what it communicates, see `origins`

    def now(self) -> Said:
        """With the op, the origin of its tensor, and the user's line."""
        return replace(self, op=current_op.name, line=user_line(), origin=current_op.origin)

    def to_json(self) -> str:
        """The inverse of `from_json`."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> Said:
        """The inverse of `to_json`."""
        fields = json.loads(text)
        for name in ("sends", "recvs"):
            fields[name] = {int(rank): forms for rank, forms in fields[name].items()}
        return Said(**{**fields, "ranks": tuple(fields["ranks"])})

    def __str__(self) -> str:
        of = f" of op '{self.op}'" if self.op else ""
        return f"{self.what}{of} at {self.line}"


class _Unchecked(NamedTuple):
    """With ONEFOLD_CHECK=1: a collective that was begun and not compared yet."""

    said: Said
    known: tuple[Hashable, str, str]  # what all must agree on, the op, and the user's line
    origin: int

    def in_full(self) -> Said:
        _, op, line = self.known
        return replace(self.said, op=op, line=line, origin=self.origin)


def form(shape: Sequence[int], dtype: torch.dtype) -> str:
    """What two ranks must agree on about one tensor: `float32 (2, 3)`."""
    return f"{str(dtype).removeprefix('torch.')} {tuple(shape)}"


def agree(link: Connection, counter: Counter, what: Hashable, said: Callable[[], Said]) -> None:
    """Raise RankMismatch on every rank of `counter` unless all are about to do the same.

    `what` is all that they must agree on, in the same words on each of them. What they expect is
    not compared; see `Agreement`. With ONEFOLD_CHECK=1 everything is, and `said` must fit: sends
    and receipts, the op and the user's line too.
    """
    if len(counter.ranks) == 1:
        return
    if link.check:
        _check(link, counter, what, said())
    elif not counter.agreement.expects(what):
        if not _all_say(link, counter, repr(what), said()):
            _compare(link, counter, [said().now()], False)
            raise AssertionError(f"ranks differ in {what}, but say the same")
        counter.agreement.learn(what)


def _check(link: Connection, counter: Counter, what: Hashable, said: Said) -> None:
    """Compare everything: at once where it is new, and else some collectives together."""
    line = origins.state.line or user_line()
    known = what, current_op.name, line
    unchecked: list[_Unchecked] = counter.unchecked
    unchecked.append(_Unchecked(said, known, current_op.origin))
    expected = counter.agreement.expects(known)
    if expected and len(unchecked) < _TOGETHER:
        return
    counter.unchecked = []
    text = repr([(each.known, each.origin) for each in unchecked])
    free = any(each.said.sends and not each.said.decided for each in unchecked)
    if not _all_say(link, counter, text, said) or free:
        _compare(link, counter, [each.in_full() for each in unchecked], True)
    if not expected:
        counter.agreement.learn(known)


def _compare(link: Connection, counter: Counter, mine: Sequence[Said], exact: bool) -> None:
    """Raise RankMismatch for the first entry in which ranks differ."""
    pending = Pending(f"check before {mine[-1].what}", current_op.name, (counter,))
    text = json.dumps([each.to_json() for each in mine])
    told = _exchange(link, counter, "check", text, pending)
    lists = {
        rank: [Said.from_json(each) for each in json.loads(all_)] for rank, all_ in told.items()
    }
    for index in range(min(map(len, lists.values()))):
        said_by = {rank: entries[index] for rank, entries in lists.items()}
        error = _mismatch(counter, said_by, exact)
        if error is not None:
            raise error
        for a, b in combinations(counter.ranks, 2):
            one, two = said_by[a], said_by[b]
            if one.origin != two.origin and one.origin and two.origin:
                history = json.dumps(origins.history(mine[index].origin))
                rows = _exchange(link, counter, "origins", history, pending)
                raise RankMismatch(
                    f"ranks {a} and {b} met in one collective with different tensors:\n"
                    f"  rank {a}: {one}\n  rank {b}: {two}\n"
                    f"What made them differs first in:\n  rank {a}: {_parting(rows[a], rows[b])}\n"
                    f"  rank {b}: {_parting(rows[b], rows[a])}\n{_ADVICE}"
                )


def agree_on_messages(
    link: Connection, counter: Counter, what: Hashable, said: Callable[[], Said]
) -> None:
    """As `agree`, with the other rank of a pair, but without waiting for it.

    It may begin much later. Of two ranks that do not expect what they do, the second compares, and
    then has not begun to communicate.
    """
    if not link.check and counter.agreement.expects(what):
        return
    key, mine = f"agree/{counter.key}/{counter.seq}", said().now().to_json()
    first = link.store.compare_set(key, "", mine).decode()
    if first != mine:
        link.store.delete_key(key)
        other = sum(counter.ranks) - link.rank
        told = {link.rank: Said.from_json(mine), other: Said.from_json(first)}
        error = _mismatch(counter, told, link.check)
        if error is not None:
            link.fail(error)
            raise error
    if not link.check:
        counter.agreement.learn(what)


def _all_say(link: Connection, counter: Counter, text: str, said: Said) -> bool:
    """Whether every rank says `text`; asks the store twice, however many ranks there are."""
    digest = blake2b(text.encode(), digest_size=_NUMBER_BYTES).digest()
    number = int.from_bytes(digest, "big")
    key, count = f"agree/{counter.key}/{counter.seq}", len(counter.ranks)
    verdict = f"{key}/same"

    def ask() -> bool:
        counter.compared = counter.seq
        total = link.store.add(key, (1 << _COUNTED_FROM) + number)
        if total >> _COUNTED_FROM == count:
            same = total - (count << _COUNTED_FROM) == count * number
            if link.store.compare_set(verdict, "", str(same)) == _LATE:
                raise RuntimeError("a peer did not wait any longer")
            # All have come here, so all have read the verdict before.
            for old in link.compared_keys.get(counter.key, ()):
                link.store.delete_key(old)
        else:
            _wait(link, counter, verdict, pending)
            found = link.store.get(verdict)
            if found == _LATE:
                raise RuntimeError("timed out")
            same = found == b"True"
        link.compared_keys[counter.key] = (key, verdict)
        return same

    pending = Pending(said.what.partition(" ")[0], current_op.name, (counter,))
    try:
        return link.meet(pending, ask)
    except CommTimeout:
        link.watch.pending = pending  # the others give up too, and may still ask where it was
        raise


def _wait(link: Connection, counter: Counter, verdict: str, pending: Pending) -> None:
    """Wait for the verdict, unless a rank has gone on without comparing."""
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
            if rank in report.arrived and compared < counter.seq
        }
        if gone & suspects and not link.store.check([verdict]):
            rank = min(gone & suspects)
            error = RankMismatch(
                f"ranks {link.rank} and {rank} are at different operations:\n"
                f"  rank {link.rank}: {pending.describe()}, at {user_line()}\n"
                f"  rank {rank}: {report.arrived[rank]}\n"
                f"Rank {rank} went on as before, but rank {link.rank} did something else. {_ADVICE}"
            )
            link.fail(error)
            raise error
        suspects = gone
        if not gone:
            patience *= 2  # the others are late; do not ask them too often


def _parting(mine: str, theirs: str) -> str:
    """The first entry of one history that is not in the other."""
    known = {number for number, _, _ in json.loads(theirs)}
    rows = (f"{text}, first at {line}" for n, text, line in json.loads(mine) if n not in known)
    return next(rows, "nothing else")


def _exchange(
    link: Connection, counter: Counter, name: str, mine: str, pending: Pending
) -> dict[int, str]:
    """What every rank of the counter says, by rank."""
    keys = {rank: f"{name}/{counter.key}/{counter.seq}/{rank}" for rank in counter.ranks}
    own = f"{name}/{counter.key}"

    def exchange() -> dict[int, str]:
        link.store.set(keys[link.rank], mine)
        link.wait_for_keys(list(keys.values()), pending)
        said = {rank: link.store.get(key).decode() for rank, key in keys.items()}
        # All have set this key, so all have read the one before.
        for old in link.compared_keys.get(own, ()):
            link.store.delete_key(old)
        link.compared_keys[own] = (keys[link.rank],)
        return said

    return link.meet(pending, exchange)


def _mismatch(counter: Counter, told: Mapping[int, Said], exact: bool) -> RankMismatch | None:
    """The error for the first two ranks that said something else, if there are any."""
    for a, b in combinations(counter.ranks, 2):
        difference = _difference(a, told[a], b, told[b], exact)
        if difference:
            return RankMismatch(
                f"ranks {a} and {b} met in one collective with different operations:\n"
                f"  rank {a}: {told[a]}\n  rank {b}: {told[b]}\n"
                f"They differ in {difference}. {_ADVICE}"
            )
    return None


def _difference(a: int, one: Said, b: int, two: Said, exact: bool) -> str:
    if one.what != two.what:
        return "the collective"
    if exact and one.op != two.op:
        return "the op"
    if exact and one.line != two.line and one.what != "transfer":
        return "the line"
    if one.ranks != two.ranks:
        return f"the order of their ranks, {one.ranks} and {two.ranks}"
    for source, sender, target, receiver in ((a, one, b, two), (b, two, a, one)):
        sent, expected = sender.sends.get(target, []), receiver.recvs.get(source, [])
        if sent != expected:
            return f"what rank {source} sends, {sent}, and rank {target} expects, {expected}"
    return ""
