"""Before a collective the ranks compare what they are about to do, unless all expect the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import NamedTuple

import torch

from ..errors import RankMismatch, user_line
from . import origins
from .connection import Connection
from .pending import Counter, Pending
from .told_checksum import ADVICE, Told, answer, tell
from .wait import current_op

# With ONEFOLD_CHECK=1: as many collectives of a group that were expected are compared together.
_TOGETHER = 32
_MOST_SAID = 1 << 12


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

    @property
    def kind(self) -> str:
        """The name of the collective."""
        return self.what.partition(" ")[0]

    def is_free(self) -> bool:
        """Whether ranks that agree on `what` may still send what others do not expect."""
        return bool(self.sends) and not self.decided

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


class _Begun(NamedTuple):
    """With ONEFOLD_CHECK=1: a collective that was begun and not compared yet."""

    said: Said
    known: tuple[Hashable, str, str]  # what all must agree on, the op, and the user's line
    origin: int

    def in_full(self) -> Said:
        _, op, line = self.known
        return replace(self.said, op=op, line=line, origin=self.origin)


class _Checks:
    """With ONEFOLD_CHECK=1: what the ranks of a counter still have to compare."""

    def __init__(self) -> None:
        self.said: dict[Hashable, Said] = {}  # by what all must agree on
        self.begun: list[_Begun] = []
        self.told: Told | None = None  # of those in `before`
        self.before: list[_Begun] = []


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
        _check(link, counter, what, said)
    elif not counter.agreement.expects(what):
        if not _all_say(link, counter, said().kind, repr(what)):
            _compare(link, counter, [said().now()], False)
            raise AssertionError(f"ranks differ in {what}, but say the same")
        counter.agreement.learn(what)


def _check(link: Connection, counter: Counter, what: Hashable, say: Callable[[], Said]) -> None:
    """Compare everything: at once where it is new, and else some collectives together."""
    checks = counter.checks
    if not isinstance(checks, _Checks):
        checks = counter.checks = _Checks()
    said = checks.said.get(what)
    if said is None:
        said = say()
        if not said.is_free() and len(checks.said) < _MOST_SAID:
            checks.said[what] = said
    known = what, current_op.name, origins.state.line or user_line()
    entry = _Begun(said, known, current_op.origin)
    if counter.agreement.expects(known):
        if len(checks.begun) == _TOGETHER:
            _check_together(link, replace(counter, seq=counter.seq - 1), checks)
            counter.compared = counter.seq - 1
        checks.begun.append(entry)
        return
    entries = [*checks.before, *checks.begun, entry]
    checks.told, checks.before, checks.begun = None, [], []
    same = _all_say(link, counter, said.kind, _text(entries))
    if not same or any(each.said.is_free() for each in entries):
        _compare(link, counter, [each.in_full() for each in entries], True)
    counter.agreement.learn(known)


def _check_together(link: Connection, counter: Counter, checks: _Checks) -> None:
    """Tell of what was begun, and look at what all told the last time: no rank waits for another.

    `counter` is that of the last of them.
    """
    told, before, begun = checks.told, checks.before, checks.begun
    checks.told, checks.before, checks.begun = None, [], []
    kind = begun[-1].said.kind
    if told is not None and not answer(link, kind, told):
        _compare(link, counter, [each.in_full() for each in before], True)
    if any(each.said.is_free() for each in begun):
        _compare(link, counter, [each.in_full() for each in begun], True)
    else:
        checks.told, checks.before = tell(link, counter, kind, _text(begun)), begun


def _text(entries: Sequence[_Begun]) -> str:
    return repr([(each.known, each.origin) for each in entries])


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
                    f"  rank {b}: {_parting(rows[b], rows[a])}\n{ADVICE}"
                )


def agree_on_messages(
    link: Connection, counter: Counter, what: Hashable, said: Callable[[], Said]
) -> None:
    """As `agree`, with the other rank of a pair, of which one sends and the other receives.

    What is new waits for the other rank: ranks begin messages in an order that agrees with one
    order of all, so that ends. With ONEFOLD_CHECK=1 the second to come compares.
    """
    if not link.check:
        agree(link, counter, what, said)
        return
    key, mine = f"agree/{counter.key}/{counter.seq}", said().now().to_json()
    first = link.store.compare_set(key, "", mine).decode()
    if first == mine:
        return
    link.store.delete_key(key)
    other = sum(counter.ranks) - link.rank
    told = {link.rank: Said.from_json(mine), other: Said.from_json(first)}
    error = _mismatch(counter, told, True)
    if error is not None:
        link.fail(error)
        raise error


def _all_say(link: Connection, counter: Counter, kind: str, text: str) -> bool:
    """Whether every rank says `text` now."""
    counter.compared = counter.seq
    return answer(link, kind, tell(link, counter, kind, text))


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
                f"They differ in {difference}. {ADVICE}"
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
