"""ThreadStack: the blocks that a thread has entered. Each thread has its own stack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

T = TypeVar("T")


class ThreadStack(Generic[T]):
    """The items that the blocks around this thread have pushed, the innermost last.

    >>> stack = ThreadStack[int]("depths")
    >>> stack.push(1); stack.push(2); stack.pop()
    >>> stack.items()
    (1,)
    """

    def __init__(self, name: str) -> None:
        items: ContextVar[tuple[T, ...]] = ContextVar(name, default=())
        items.set(())  # what was set is found sooner than a default
        self.items, self.set = items.get, items.set

    def push(self, item: T) -> None:
        self.set((*self.items(), item))

    def pop(self) -> None:
        self.set(self.items()[:-1])

    @contextmanager
    def emptied(self) -> Iterator[None]:
        """A block in which the stack is empty."""
        before = self.items()
        self.set(())
        try:
            yield
        finally:
            self.set(before)

    @property
    def last(self) -> T | None:
        """The item of the innermost block; None outside of all blocks."""
        items = self.items()
        return items[-1] if items else None
