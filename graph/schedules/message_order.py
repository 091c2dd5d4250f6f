"""Messages among actions: sends and receives of every rank, in one global order.

The order is that in which the messages are ready. Each rank posts its own in this order, receives
before the action that needs them. So no send can wait for a receive that is posted after it, even
on back ends that match messages by order alone. (Each pair of ends is one sparse collective, and
all ranks agree on their order.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

_AHEAD = 1  # actions before the one that needs it, a receive is posted


@dataclass(frozen=True, slots=True)
class Posting(Generic[T]):
    """A message of one rank: after which of its actions it is sent, or which one receives it."""

    message: T
    is_send: bool
    action: int


def postings_after(postings: Sequence[Posting[T]], actions: int) -> list[list[T]]:
    """The messages to post before the first of so many actions, then those after each of them.

    `postings` are those of one rank, in the order of all messages.

    >>> send, receive = Posting("send", True, 0), Posting("receive", False, 3)
    >>> postings_after([send, receive], 4)
    [[], ['send'], ['receive'], [], []]
    """
    waiting = list(postings)
    found = []
    for done in range(-1, actions):
        count = _postable(waiting, done)
        found.append([each.message for each in waiting[:count]])
        del waiting[:count]
    assert not waiting
    return found


def _postable(waiting: Sequence[Posting[T]], done: int) -> int:
    """How many of the next messages to post: receives when soon needed, or before a send."""
    count = 0
    for place, each in enumerate(waiting):
        if each.is_send:
            if each.action > done:
                break
            count = place + 1
        elif each.action <= done + 1 + _AHEAD:
            count = place + 1
    return count
