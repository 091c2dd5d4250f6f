"""Cost tables by number: equal tables have one number, and what is made of them is made once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .cost_network import Costs

_COMPARED_SIZE = 1 << 16  # entries of the largest tables that are compared with others


class CostTables:
    """Arrays of costs, of which equal ones are stored once."""

    def __init__(self) -> None:
        self.arrays: list[Costs] = []
        self._numbers: dict[object, int] = {}
        self._known: dict[object, tuple[Costs, int]] = {}  # keeps the array, whose identity is used
        self._made: dict[object, int] = {}

    def number(self, array: Costs, transposed: bool = False) -> int:
        """The number of a table, or of its transpose."""
        key = id(array), transposed
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = array, self.add(array.T if transposed else array)
        return found[1]

    def add(self, array: Costs) -> int:
        """The number of the table with these entries."""
        array = np.ascontiguousarray(array)
        small = array.size <= _COMPARED_SIZE
        key: object = (array.shape, array.tobytes()) if small else object()
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.arrays)
            self.arrays.append(array)
        return found

    def added(self, a: int, b: int) -> int:
        """The sum of two tables."""
        return self._make(("added", a, b), lambda: self.arrays[a] + self.arrays[b])

    def priced(self, costs: int, memory: int, price: float) -> int:
        """Costs, and memory at a price."""
        return self._make(
            ("priced", costs, memory, price),
            lambda: self.arrays[costs] + price * self.arrays[memory],
        )

    def transposed(self, table: int) -> int:
        return self._make(("transposed", table), lambda: self.arrays[table].T)

    def selected(self, table: int, rows: tuple[int, ...]) -> int:
        """Some rows of a table."""
        return self._make(("selected", table, rows), lambda: self.arrays[table][list(rows)])

    def block(self, table: int, rows: tuple[int, ...], columns: tuple[int, ...]) -> int:
        """Some rows and columns of a table."""
        return self._make(
            ("block", table, rows, columns), lambda: self.arrays[table][np.ix_(rows, columns)]
        )

    def row(self, table: int) -> int:
        """The first row of a table."""
        return self._make(("row", table), lambda: self.arrays[table][0])

    def differences(self, table: int) -> int:
        """For each pair of rows, the least difference of the first and the second."""

        def least() -> Costs:
            array = self.arrays[table]
            found: Costs = (array[:, None, :] - array[None, :, :]).min(2)
            return found

        return self._make(("differences", table), least)

    def _make(self, key: object, make: Callable[[], Costs]) -> int:
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self.add(make())
        return found
