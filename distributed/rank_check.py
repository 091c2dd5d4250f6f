"""ONEFOLD_CHECK=1: before each collective the ranks compare what they are about to do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TypedDict

import torch

from ..errors import RankMismatch, user_line
from .connection import Connection
from .pending import Counter, Pending


class _Said(TypedDict):
    """What a rank is about to do."""

    what: str  # the collective with all that must be equal
    op: str
    line: str
    sends: dict[str, list[str]]  # by the rank that they go to
    recvs: dict[str, list[str]]


def form(shape: Sequence[int], dtype: torch.dtype) -> str:
    """What two ranks must agree on about one tensor: `float32 (2, 3)`."""
    return f"{str(dtype).removeprefix('torch.')} {tuple(shape)}"


def compare(
    link: Connection,
    counter: Counter,
    op: str,
    what: str,
    sends: Mapping[int, Sequence[str]],
    recvs: Mapping[int, Sequence[str]],
) -> None:
    """Raise RankMismatch on every rank of `counter` unless all are about to do the same.

    `what` is the collective with all that must be equal; `sends` and `recvs` say, by the other
    rank, the forms of the tensors that go to it and come from it. The user's line counts too.
    """
    mine: _Said = {
        "what": what,
        "op": op,
        "line": user_line(),
        "sends": {str(rank): list(forms) for rank, forms in sends.items()},
        "recvs": {str(rank): list(forms) for rank, forms in recvs.items()},
    }
    said = _exchange(link, counter, mine, Pending(f"check before {what}", op, (counter,)))
    for a, b in combinations(counter.ranks, 2):
        difference = _difference(a, said[a], b, said[b])
        if difference:
            raise RankMismatch(
                f"ranks {a} and {b} met in one collective with different operations:\n"
                f"  rank {a}: {_text(said[a])}\n  rank {b}: {_text(said[b])}\n"
                f"They differ in {difference}. Every rank must run the same operations in the "
                "same order; look for a branch that depends on the rank, or on data that differs "
                "between ranks."
            )


def _exchange(
    link: Connection, counter: Counter, mine: _Said, pending: Pending
) -> dict[int, _Said]:
    keys = {rank: f"check/{counter.key}/{counter.seq}/{rank}" for rank in counter.ranks}

    def exchange() -> dict[int, _Said]:
        link.store.set(keys[link.rank], json.dumps(mine))
        link.wait_for_keys(list(keys.values()), pending)
        said = {rank: json.loads(link.store.get(key)) for rank, key in keys.items()}
        # All have set this key, so all have read the one before.
        link.store.delete_key(f"check/{counter.key}/{counter.seq - 1}/{link.rank}")
        return said

    return link.meet(pending, exchange)


def _difference(a: int, one: _Said, b: int, two: _Said) -> str:
    if one["what"] != two["what"]:
        return "the collective"
    if one["op"] != two["op"]:
        return "the op"
    if one["line"] != two["line"]:
        return "the line"
    for source, sender, target, receiver in ((a, one, b, two), (b, two, a, one)):
        sent = sender["sends"].get(str(target), [])
        expected = receiver["recvs"].get(str(source), [])
        if sent != expected:
            return f"what rank {source} sends, {sent}, and rank {target} expects, {expected}"
    return ""


def _text(said: _Said) -> str:
    of = f" of op '{said['op']}'" if said["op"] else ""
    return f"{said['what']}{of} at {said['line']}"
