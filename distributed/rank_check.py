"""Before a collective the ranks compare what they are about to do, and what they have done."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TypedDict, TypeVar

import torch

from ..errors import RankMismatch, user_line
from .connection import Connection
from .pending import Counter, Pending
from .trail import Agreement

S = TypeVar("S")

# How long a rank waits for others to compare before it asks where they are.
_PATIENCE = 2.0
_SHOWN = 5  # ops
_NOTHING = ("nothing", "")
_ADVICE = (
    "Every rank must run the same operations in the same order; look for a branch that depends on "
    "the rank, or on data that differs between ranks."
)


class _Said(TypedDict):
    """What a rank is about to do."""

    what: str  # the collective with all that must be equal
    op: str
    line: str
    sends: dict[str, list[str]]  # by the rank that they go to
    recvs: dict[str, list[str]]
    ops: int  # hashes of the trail since ranks compared, see `Agreement`
    values: int


def form(shape: Sequence[int], dtype: torch.dtype) -> str:
    """What two ranks must agree on about one tensor: `float32 (2, 3)`."""
    return f"{str(dtype).removeprefix('torch.')} {tuple(shape)}"


def agree(
    link: Connection,
    counter: Counter,
    op: str,
    what: str,
    sends: Mapping[int, Sequence[str]],
    recvs: Mapping[int, Sequence[str]],
) -> None:
    """Raise RankMismatch on every rank of `counter` unless all are about to do the same.

    `what` is the collective with all that must be equal; `sends` and `recvs` say, by the other
    rank, the forms of the tensors that go to it and come from it. What ran on global tensors
    since the collective before must be equal too. Nothing is compared where it is known that the
    others can only do the same; see `Agreement`. With ONEFOLD_CHECK=1 all is compared always, and
    the op and the user's line count too.
    """
    if len(counter.ranks) == 1:
        return
    agreement = link.agreements.get(counter.key)
    if agreement is None:
        agreement = link.agreements[counter.key] = Agreement(counter.ranks)
    since = agreement.ops()
    peers = [(rank, tuple(forms)) for each in (sends, recvs) for rank, forms in each.items()]
    now = hash((what, since, *peers))
    if agreement.is_known(now) and not link.check:
        return
    mine: _Said = {
        "what": what,
        "op": op if link.check else "",
        "line": user_line(),
        "sends": {str(rank): list(forms) for rank, forms in sends.items()},
        "recvs": {str(rank): list(forms) for rank, forms in recvs.items()},
        "ops": since,
        "values": agreement.values(),
    }
    pending = Pending(f"check before {what}", op, (counter,))
    said = _exchange(link, counter, "check", mine, pending)
    for a, b in combinations(counter.ranks, 2):
        difference = _difference(a, said[a], b, said[b], link.check)
        if difference:
            before = _told_before(link, counter, agreement, pending, a, b)
            raise RankMismatch(
                f"ranks {a} and {b} met in one collective with different operations:\n"
                f"  rank {a}: {_text(said[a])}\n  rank {b}: {_text(said[b])}\n"
                f"They differ in {difference}.{before} {_ADVICE}"
            )
    agreement.learn(now)


def _exchange(
    link: Connection, counter: Counter, name: str, mine: S, pending: Pending
) -> dict[int, S]:
    """What every rank of the counter says, by rank."""
    keys = {rank: f"{name}/{counter.key}/{counter.seq}/{rank}" for rank in counter.ranks}
    own = f"{name}/{counter.key}"

    def exchange() -> dict[int, S]:
        link.store.set(keys[link.rank], json.dumps(mine))
        _wait(link, counter, keys, mine, pending)
        said = {rank: json.loads(link.store.get(key)) for rank, key in keys.items()}
        # All have set this key, so all have read the one before.
        if own in link.said:
            link.store.delete_key(link.said[own])
        link.said[own] = keys[link.rank]
        return said

    return link.meet(pending, exchange)


def _wait(
    link: Connection, counter: Counter, keys: Mapping[int, str], mine: object, pending: Pending
) -> None:
    """Wait for the keys of all ranks, unless one of them has gone on without comparing."""
    deadline = time.monotonic() + link.timeout
    suspects: set[int] = set()
    while True:
        left = deadline - time.monotonic()
        try:
            link.wait_for_keys(list(keys.values()), pending, min(_PATIENCE, left))
        except RuntimeError:
            if left <= _PATIENCE or link.is_in_vain(pending):
                raise
        else:
            return
        missing = {rank for rank, key in keys.items() if not link.store.check([key])}
        report = link.watch.ask(pending)
        gone = sorted(missing & suspects & report.arrived.keys())
        if gone and not link.store.check([keys[gone[0]]]):
            error = RankMismatch(
                f"ranks {link.rank} and {gone[0]} are at different operations:\n"
                f"  rank {link.rank}: {pending.describe()}, at {user_line()}\n"
                f"  rank {gone[0]}: {report.arrived[gone[0]]}\n"
                f"Rank {gone[0]} did what it did in the steps before, rank {link.rank} did not."
                f"{_newest(link, counter)} {_ADVICE}"
            )
            link.fail(error)
            raise error
        suspects = missing & report.arrived.keys()


def _newest(link: Connection, counter: Counter) -> str:
    """The newest ops of this rank."""
    rows = [row for row in link.agreements[counter.key].told() if str(row[0]).startswith("op")]
    if not rows:
        return ""
    shown = [f"\n    {text}, first at {line}" for _, text, line in rows[-_SHOWN:]]
    return f" Its newest ops:{''.join(shown)}\n"


def _told_before(
    link: Connection, counter: Counter, agreement: Agreement, pending: Pending, a: int, b: int
) -> str:
    """Where the trails of two ranks part: all ranks of the counter are here, and tell theirs."""
    told = _exchange(link, counter, "trail", agreement.told(), pending)
    agreement.skip()
    one = {str(key): (text, line) for key, text, line in told[a]}
    two = {str(key): (text, line) for key, text, line in told[b]}
    for key in [*one, *(key for key in two if key not in one)]:
        mine, theirs = one.get(key, _NOTHING), two.get(key, _NOTHING)
        if mine[0] != theirs[0]:
            sides = ((a, mine), (b, theirs))
            rows = [
                f"\n  rank {rank}: {text}{f', first at {line}' if line else ''}"
                for rank, (text, line) in sides
            ]
            return f"\nWhat they did before parts at:{''.join(rows)}\n"
    return ""


def _difference(a: int, one: _Said, b: int, two: _Said, lines: bool) -> str:
    if one["what"] != two["what"]:
        return "the collective"
    if one["op"] != two["op"]:
        return "the op"
    if lines and one["line"] != two["line"]:
        return "the line"
    for source, sender, target, receiver in ((a, one, b, two), (b, two, a, one)):
        sent = sender["sends"].get(str(target), [])
        expected = receiver["recvs"].get(str(source), [])
        if sent != expected:
            return f"what rank {source} sends, {sent}, and rank {target} expects, {expected}"
    if one["ops"] != two["ops"]:
        return "the ops before it"
    if one["values"] != two["values"]:
        return "numbers of the ops before it"
    return ""


def _text(said: _Said) -> str:
    of = f" of op '{said['op']}'" if said["op"] else ""
    return f"{said['what']}{of} at {said['line']}"
