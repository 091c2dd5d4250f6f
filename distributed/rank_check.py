"""Rank check: before a collective ranks compare what they are about to do, unless all expect it."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import NamedTuple

import torch

from ..errors import RankMismatch, user_line
from . import provenance
from .connection import Connection
from .pending import Counter, Pending
from .posted_checksum import ADVICE, PostedChecksum, all_equal, post_checksum
from .wait import current_op

# With ONEFOLD_CHECK=1: how many expected collectives of a group are compared together.
_TOGETHER = 32
_MAX_CALLS = 1 << 12


@dataclass(frozen=True)
class CollectiveCall:
    """What a rank is about to do, as it describes it to the others."""

    what: str  # the collective with all that must be equal
    ranks: tuple[int, ...] = ()  # in the order of their pieces
    # The forms of the tensors, by the rank that they go to or come from.
    sends: Mapping[int, Sequence[str]] = field(default_factory=dict)
    recvs: Mapping[int, Sequence[str]] = field(default_factory=dict)
    decided: bool = False  # whether ranks that agree must send what the others expect
    op: str = ""
    line: str = ""
    origin: int = 0  # of what it communicates, see `provenance`

    def now(self) -> CollectiveCall:
        """With the op, the origin of its tensor, and the user's line."""
        return replace(self, op=current_op.name, line=user_line(), origin=current_op.origin)

    def to_json(self) -> str:
        """The inverse of `from_json`."""
        return json.dumps(asdict(self))

    @property
    def kind(self) -> str:
        """The name of the collective."""
        return self.what.partition(" ")[0]

    def is_free(self) -> bool:
        """Whether ranks that agree on `what` may still send what others do not expect."""
        return bool(self.sends) and not self.decided

    @staticmethod
    def from_json(text: str | bytes) -> CollectiveCall:
        """The inverse of `to_json`."""
        fields = json.loads(text)
        for name in ("sends", "recvs"):
            fields[name] = {int(rank): forms for rank, forms in fields[name].items()}
        return CollectiveCall(**{**fields, "ranks": tuple(fields["ranks"])})

    def __str__(self) -> str:
        of = f" of op '{self.op}'" if self.op else ""
        return f"{self.what}{of} at {self.line}"


class _Begun(NamedTuple):
    """With ONEFOLD_CHECK=1: a collective that was begun and not compared yet."""

    call: CollectiveCall
    known: tuple[Hashable, str, str]  # what all must agree on, the op, and the user's line
    origin: int

    def in_full(self) -> CollectiveCall:
        _, op, line = self.known
        return replace(self.call, op=op, line=line, origin=self.origin)


class _Checks:
    """With ONEFOLD_CHECK=1: what the ranks of a counter have yet to compare."""

    def __init__(self) -> None:
        self.calls: dict[Hashable, CollectiveCall] = {}  # by what all must agree on
        self.begun: list[_Begun] = []
        self.posted: PostedChecksum | None = None  # of those in `before`
        self.before: list[_Begun] = []


def form(shape: Sequence[int], dtype: torch.dtype) -> str:
    """What two ranks must agree on about one tensor: `float32 (2, 3)`."""
    return f"{str(dtype).removeprefix('torch.')} {tuple(shape)}"


def agree(
    link: Connection, counter: Counter, what: Hashable, describe: Callable[[], CollectiveCall]
) -> None:
    """Raise RankMismatch on every rank of `counter` unless all are about to do the same.

    `what` is all that they must agree on, equal on each of them. What they expect is not compared;
    see `Agreement`. With ONEFOLD_CHECK=1 everything is, also what `describe` gives: sends and
    receives, the op and the user's line.
    """
    if len(counter.ranks) == 1:
        return
    if link.check:
        _check(link, counter, what, describe)
    elif not counter.agreement.expects(what):
        if not _all_same(link, counter, describe().kind, repr(what)):
            _compare(link, counter, [describe().now()], False)
            raise AssertionError(f"ranks differ in {what}, but their descriptions are equal")
        counter.agreement.learn(what)


def _check(
    link: Connection, counter: Counter, what: Hashable, describe: Callable[[], CollectiveCall]
) -> None:
    """Compare everything: immediately if it is new, otherwise several collectives together."""
    checks = counter.checks
    if not isinstance(checks, _Checks):
        checks = counter.checks = _Checks()
    call = checks.calls.get(what)
    if call is None:
        call = describe()
        if not call.is_free() and len(checks.calls) < _MAX_CALLS:
            checks.calls[what] = call
    known = what, current_op.name, provenance.state.line or user_line()
    entry = _Begun(call, known, current_op.origin)
    if counter.agreement.expects(known):
        if len(checks.begun) == _TOGETHER:
            _check_together(link, replace(counter, seq=counter.seq - 1), checks)
            counter.compared = counter.seq - 1
        checks.begun.append(entry)
        return
    entries = [*checks.before, *checks.begun, entry]
    checks.posted, checks.before, checks.begun = None, [], []
    same = _all_same(link, counter, call.kind, _text(entries))
    if not same or any(each.call.is_free() for each in entries):
        _compare(link, counter, [each.in_full() for each in entries], True)
    counter.agreement.learn(known)


def _check_together(link: Connection, counter: Counter, checks: _Checks) -> None:
    """Post a checksum of what was begun, and compare the one before it, for which no rank waits.

    `counter` is that of the last collective.
    """
    posted, before, begun = checks.posted, checks.before, checks.begun
    checks.posted, checks.before, checks.begun = None, [], []
    kind = begun[-1].call.kind
    if posted is not None and not all_equal(link, kind, posted):
        _compare(link, counter, [each.in_full() for each in before], True)
    if any(each.call.is_free() for each in begun):
        _compare(link, counter, [each.in_full() for each in begun], True)
    else:
        checks.posted, checks.before = post_checksum(link, counter, kind, _text(begun)), begun


def _text(entries: Sequence[_Begun]) -> str:
    return repr([(each.known, each.origin) for each in entries])


def _compare(
    link: Connection, counter: Counter, mine: Sequence[CollectiveCall], exact: bool
) -> None:
    """Raise RankMismatch for the first entry in which ranks differ."""
    pending = Pending(f"check before {mine[-1].what}", current_op.name, (counter,))
    text = json.dumps([each.to_json() for each in mine])
    texts = _exchange(link, counter, "check", text, pending)
    lists = {
        rank: [CollectiveCall.from_json(each) for each in json.loads(all_)]
        for rank, all_ in texts.items()
    }
    for index in range(min(map(len, lists.values()))):
        calls = {rank: entries[index] for rank, entries in lists.items()}
        error = _mismatch(counter, calls, exact)
        if error is not None:
            raise error
        for a, b in combinations(counter.ranks, 2):
            one, two = calls[a], calls[b]
            if one.origin != two.origin and one.origin and two.origin:
                history = json.dumps(provenance.history(mine[index].origin))
                rows = _exchange(link, counter, "origins", history, pending)
                raise RankMismatch(
                    f"ranks {a} and {b} met in one collective with different tensors:\n"
                    f"  rank {a}: {one}\n  rank {b}: {two}\n"
                    f"Their histories first differ in:\n  rank {a}: {_parting(rows[a], rows[b])}\n"
                    f"  rank {b}: {_parting(rows[b], rows[a])}\n{ADVICE}"
                )


def agree_on_messages(
    link: Connection, counter: Counter, what: Hashable, describe: Callable[[], CollectiveCall]
) -> None:
    """As `agree`, with the other rank of a pair, of which one sends and the other receives.

    A new message waits for the other rank. That cannot deadlock, since all ranks begin messages in
    one global order. With ONEFOLD_CHECK=1 the second rank to arrive compares.
    """
    if not link.check:
        agree(link, counter, what, describe)
        return
    key, mine = f"agree/{counter.key}/{counter.seq}", describe().now().to_json()
    first = link.store.compare_set(key, "", mine).decode()
    if first == mine:
        return
    link.store.delete_key(key)
    other = sum(counter.ranks) - link.rank
    calls = {link.rank: CollectiveCall.from_json(mine), other: CollectiveCall.from_json(first)}
    error = _mismatch(counter, calls, True)
    if error is not None:
        link.fail(error)
        raise error


def _all_same(link: Connection, counter: Counter, kind: str, text: str) -> bool:
    """Whether every rank passes the same text; waits for those that have not come yet."""
    counter.compared = counter.seq
    return all_equal(link, kind, post_checksum(link, counter, kind, text))


def _parting(mine: str, theirs: str) -> str:
    """The first entry of one history that is not in the other."""
    known = {number for number, _, _ in json.loads(theirs)}
    rows = (f"{text}, first at {line}" for n, text, line in json.loads(mine) if n not in known)
    return next(rows, "nothing else")


def _exchange(
    link: Connection, counter: Counter, name: str, mine: str, pending: Pending
) -> dict[int, str]:
    """The texts of all ranks of the counter, by rank."""
    keys = {rank: f"{name}/{counter.key}/{counter.seq}/{rank}" for rank in counter.ranks}
    own = f"{name}/{counter.key}"

    def exchange() -> dict[int, str]:
        link.store.set(keys[link.rank], mine)
        link.wait_for_keys(list(keys.values()), pending)
        texts = {rank: link.store.get(key).decode() for rank, key in keys.items()}
        # All have set this key, so all have read the one before.
        for old in link.compared_keys.get(own, ()):
            link.store.delete_key(old)
        link.compared_keys[own] = (keys[link.rank],)
        return texts

    return link.meet(pending, exchange)


def _mismatch(
    counter: Counter, calls: Mapping[int, CollectiveCall], exact: bool
) -> RankMismatch | None:
    """The error for the first two ranks whose calls differ, if there are any."""
    for a, b in combinations(counter.ranks, 2):
        difference = _difference(a, calls[a], b, calls[b], exact)
        if difference:
            return RankMismatch(
                f"ranks {a} and {b} met in one collective with different operations:\n"
                f"  rank {a}: {calls[a]}\n  rank {b}: {calls[b]}\n"
                f"They differ in {difference}. {ADVICE}"
            )
    return None


def _difference(a: int, one: CollectiveCall, b: int, two: CollectiveCall, exact: bool) -> str:
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
