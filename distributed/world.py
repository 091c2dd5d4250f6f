"""(temporary stub by the lead until the real one lands: overwrite freely)"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class World:
    launched = False
    rank: int | None = None

    def __init__(self) -> None:
        self.size = 1

    def owned(self, ranks: Sequence[int]) -> tuple[int, ...]:
        return tuple(range(len(ranks)))

    def owns(self, rank: int) -> bool:
        return True

    def ensure(self, ranks: Sequence[int]) -> None:
        self.size = max(self.size, max(ranks) + 1)


_world = World()


def world() -> World:
    return _world


@contextmanager
def virtual_world() -> Iterator[World]:
    global _world
    before, _world = _world, World()
    try:
        yield _world
    finally:
        _world = before
