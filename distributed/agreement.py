"""What the members of a group agree on: the collectives that they began, and which comes next."""

from __future__ import annotations

from collections.abc import Hashable

# Programs with longer periods compare more often.
_KEPT = 1 << 14
_SEARCHED = 4096
_CANDIDATES = 16
_LONGEST = 256
_NOWHERE = -1


class Agreement:
    """The collectives that the members of a group began together, which tell the next one.

    A collective is expected when the same ones came before it last time. Members learn of another
    one together, when they compare what they are about to do, so all expect the same, and what is
    expected need not be compared: steps that repeat cost nothing. A member that does something
    else finds that it is not expected, and compares while the others communicate. So it never
    begins to communicate with a member that is elsewhere.

    `what` describes a collective by what all members must know of it, the sizes above all.

    >>> agreement = Agreement()
    >>> for what in ("sum", "gather", "sum"):
    ...     if not agreement.expects(what):
    ...         agreement.learn(what)
    >>> agreement.expects("gather"), agreement.expects("gather")
    (True, False)
    """

    __slots__ = ("_history", "_next", "_same")

    def __init__(self) -> None:
        self._history: list[Hashable] = []
        self._next = _NOWHERE  # where in the history the expected one is
        self._same: dict[Hashable, Hashable] = {}  # equal ones are one object

    def expects(self, what: Hashable) -> bool:
        """Whether all members expect `what`, which begins now; if not, compare and `learn` it."""
        history, place = self._history, self._next
        if place < 0 or history[place] != what:
            return False
        history.append(history[place])
        self._next = place + 1
        self._trim()
        return True

    def learn(self, what: Hashable) -> None:
        """All members begin `what`, as they have just compared."""
        self._history.append(self._same.setdefault(what, what))
        self._next = self._continued()
        self._trim()

    def _continued(self) -> int:
        """Where the history was like its end, for the longest stretch; the newest such place."""
        history, end = self._history, len(self._history) - 1
        newest = history[end]
        # What is new, such as another size, stands for what was expected.
        found = self._next + 1 if self._next >= 0 else _NOWHERE
        longest = candidates = 0
        for place in range(end - 1, max(end - _SEARCHED, 0) - 1, -1):
            if history[place] is newest:
                length = 1
                while length < min(_LONGEST, place + 1):
                    if history[place - length] is not history[end - length]:
                        break
                    length += 1
                if length > longest:
                    found, longest = place + 1, length
                candidates += 1
                if candidates == _CANDIDATES or length == _LONGEST:
                    break
        return found

    def _trim(self) -> None:
        if len(self._history) >= 2 * _KEPT:
            del self._history[:_KEPT]
            self._next = max(self._next - _KEPT, _NOWHERE)
            self._same = {what: what for what in self._history}
