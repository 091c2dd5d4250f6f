"""Trails: what a process does with global tensors, as numbers that ranks compare."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from threading import Lock
from typing import Any

# How many entries ranks compare, and keep: the newest.
_MOST = 4096
# How many collectives must have been the same for the next one to be known.
_WINDOW = 64
# What is known is compared again after so many collectives, with the numbers that may change.
EVERY = 16
_MOST_KNOWN = 1 << 14
_NAN = -0x7FF8

_described: dict[int, tuple[str, str]] = {}


def mark(text: str, line: str) -> int:
    """The number of what `text` says, the same in every process; `line` is where it came first."""
    number = int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "big")
    _described.setdefault(number, (text, line))
    return number


class Trail:
    """What this process did on the tensors of some ranks, each of which does the same.

    `marks` are the ops, in order; `values` are pairs of a mark and a number that may be another in
    every call, such as a learning rate. Whoever notes one appends it.
    """

    __slots__ = ("_dropped", "_lock", "marks", "ranks", "values")

    def __init__(self, ranks: frozenset[int]) -> None:
        self.ranks = ranks
        self.marks: list[int] = []
        self.values: list[tuple[int, object]] = []
        self._dropped = [0, 0]
        self._lock = Lock()  # a thread trims

    def ends(self) -> tuple[int, int]:
        """How many marks and values there were so far."""
        with self._lock:
            return self._dropped[0] + len(self.marks), self._dropped[1] + len(self.values)

    def marks_since(self, start: int) -> list[int]:
        """The newest of the marks since there were `start`."""
        with self._lock:
            return self.marks[max(start - self._dropped[0], len(self.marks) - _MOST, 0) :]

    def values_since(self, start: int) -> list[tuple[int, object]]:
        """The newest of the values since there were `start`."""
        with self._lock:
            return self.values[max(start - self._dropped[1], len(self.values) - _MOST, 0) :]

    def trim(self) -> None:
        """Drop what is not compared any more, when there is much of it."""
        both: list[list[Any]] = [self.marks, self.values]
        for index, entries in enumerate(both):
            count = len(entries) - _MOST
            if count > _MOST:
                with self._lock:
                    del entries[:count]
                    self._dropped[index] += count

    def forget(self) -> None:
        """Begin anew."""
        with self._lock:
            self.marks.clear()
            self.values.clear()
            self._dropped = [0, 0]


_trails: dict[frozenset[int], Trail] = {}


def trail_of(ranks: frozenset[int]) -> Trail:
    """The trail of what is done on tensors of these ranks."""
    found = _trails.get(ranks)
    if found is None:
        found = _trails[ranks] = Trail(ranks)
    return found


def forget_trails() -> None:
    """Begin anew."""
    for trail in _trails.values():
        trail.forget()


def trim_trails() -> None:
    """Trim every trail."""
    for trail in list(_trails.values()):
        trail.trim()


class Agreement:
    """What the members of a group have agreed on: which collective follows which others.

    A collective is known when it has followed the same `_WINDOW` collectives before, and nothing
    else has. Members learn it together, when they compare it. So one of them that does something
    else finds that it is not known, and compares, while the others do not: no member begins to
    communicate with one that is elsewhere, and steps that repeat cost no comparison.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self._ranks = frozenset(ranks)
        self._recent: deque[int] = deque(maxlen=_WINDOW)
        self._next: dict[int, int | None] = {}  # None: several have followed
        self._count = 0
        self._trails: list[Trail] = []
        self._seen = 0
        self._marks_at: dict[Trail, int] = {}
        self._values_at: dict[Trail, int] = {}

    def trails(self) -> list[Trail]:
        """What every member does in the same order."""
        if self._seen != len(_trails):
            self._seen = len(_trails)
            found = [trail for trail in _trails.values() if self._ranks <= trail.ranks]
            self._trails = sorted(found, key=lambda trail: sorted(trail.ranks))
        return self._trails

    def ops(self) -> int:
        """A hash of the ops since the collective before."""
        return hash(
            tuple(
                [
                    (trail.ends()[0] - start, *trail.marks_since(start))
                    for trail in self.trails()
                    if (start := self._marks_at.get(trail, 0)) != trail.ends()[0]
                ]
            )
        )

    def values(self) -> int:
        """A hash of the values since they were compared."""
        total = 0
        for trail in self.trails():
            for number, value in trail.values_since(self._values_at.get(trail, 0)):
                total = hash((total, number, _plain(value)))
        return total

    def is_known(self, what: int) -> bool:
        """Whether the members need not compare `what`, a hash, before they begin it."""
        self._count += 1
        known = self._next.get(hash(tuple(self._recent)))
        if known != what or self._count % EVERY == 0:
            return False
        self._advance(what)
        return True

    def learn(self, what: int) -> None:
        """All members have compared `what`, and begin it."""
        state = hash(tuple(self._recent))
        if len(self._next) > _MOST_KNOWN:
            self._next.clear()
        self._next[state] = what if self._next.get(state, what) == what else None
        self._advance(what)
        self.skip()

    def skip(self) -> None:
        """Compare nothing of what was done so far again."""
        for trail in self.trails():
            self._marks_at[trail], self._values_at[trail] = trail.ends()
            trail.trim()

    def _advance(self, what: int) -> None:
        self._recent.append(what)
        for trail in self.trails():
            self._marks_at[trail] = trail.ends()[0]

    def told(self) -> list[list[object]]:
        """What is compared, to be read: per entry its number in the trail, text, line and value."""
        rows: list[list[object]] = []
        for trail in self.trails():
            name, (marks, values) = sorted(trail.ranks), trail.ends()
            entries: list[tuple[int, object]] = [
                (number, "") for number in trail.marks_since(self._marks_at.get(trail, 0))
            ]
            changing = trail.values_since(self._values_at.get(trail, 0))
            for end, kind, found in ((marks, "op", entries), (values, "value", changing)):
                first = end - len(found)
                for index, (number, value) in enumerate(found):
                    text, line = _described.get(number, ("?", "?"))
                    shown = f" with {value!r}" if kind == "value" else ""
                    rows.append([f"{kind} {first + index} of {name}", text + shown, line])
        return rows


def _plain(value: object) -> object:
    """A number that has one hash in all processes: None, NaN and texts have none."""
    if isinstance(value, (int, float, complex)):
        return _NAN if value != value else value  # noqa: PLR0124
    if isinstance(value, tuple):
        return tuple([_plain(part) for part in value])
    return int.from_bytes(blake2b(repr(value).encode(), digest_size=7).digest(), "big")
