"""Saved values: which inputs and outputs an op keeps, by the gradients that are wanted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

# Which inputs or outputs vjp needs: numbers, or for the gradient of each input a tuple of them.
Saves: TypeAlias = tuple[int | tuple[int, ...], ...]


def saved_by_any(saves: Saves) -> tuple[int, ...]:
    """The positions that the gradient of some input needs, in order.

    >>> saved_by_any((2, 0)), saved_by_any(((1,), (0, 1)))
    ((0, 2), (0, 1))
    """
    found: set[int] = set()
    for each in saves:
        found.update((each,) if isinstance(each, int) else each)
    return tuple(sorted(found))


def after(count: int, saves: Saves) -> Saves:
    """The same outputs of an op that has so many more before them.

    >>> after(1, (1, 2)), after(1, ((1, 2), ()))
    ((2, 3), ((2, 3), ()))
    """
    return tuple(
        [
            each + count if isinstance(each, int) else tuple([i + count for i in each])
            for each in saves
        ]
    )


def needed_for(saves: Saves, position: int) -> tuple[int, ...] | None:
    """The inputs whose gradients need what is at a position; None: that of any input does.

    >>> needed_for((0,), 0), needed_for(((1,), (0, 1)), 0), needed_for(((1,), (0, 1)), 1)
    (None, (1,), (0, 1))
    """
    if position in saves:
        return None
    pairs = enumerate(saves)
    return tuple([i for i, each in pairs if isinstance(each, tuple) and position in each])


def saved_for(saves: Saves, needs: Sequence[object]) -> Collection[object]:
    """The positions that the gradients of some inputs need, which are not None in `needs`.

    >>> saved_for((0, 1), (None, "edge")), saved_for(((1,), (0,)), (None, "edge"))
    ((0, 1), {0})
    """
    if not saves or isinstance(saves[0], int):
        return saves
    found: set[int] = set()
    for need, each in zip(needs, saves, strict=False):
        if need is not None and isinstance(each, tuple):
            found.update(each)
    return found
