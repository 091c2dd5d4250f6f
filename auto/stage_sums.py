"""Stage sums: the units of each stage of a candidate, and their totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .unit_costs import UnitCost

_ROUNDING = 1 + 1e-9


@dataclass(slots=True)
class Working:
    """The bytes that a running unit of a stage, or its backward, needs besides what all units keep.

    When backward is at a unit, what the later ones kept is free.
    """

    most: int = 0
    at_weights: int = 0  # while weights are read, or their gradients made

    def add(self, unit: UnitCost, recomputed: int) -> None:
        """Add a unit that recomputes so many bytes of its activations."""
        freed = unit.kept - recomputed
        self.most = max(self.most - freed, unit.working + recomputed)
        self.at_weights = max(self.at_weights - freed, unit.at_weights + recomputed)

    def with_gathered(self, nbytes: float) -> float:
        """The most where whole weights and gradients, which ZeRO gathers, take so many bytes."""
        return max(self.most, self.at_weights + nbytes)


@dataclass(slots=True)
class Stage:
    """The sums over the units of a stage."""

    units: list[UnitCost] = field(default_factory=list)
    forward: float = 0.0
    backward: float = 0.0
    forward_comm: float = 0.0  # along the tensor axis
    backward_comm: float = 0.0
    passing: float = 0.0
    kept: int = 0
    weights: int = 0
    persistent: int = 0
    largest: int = 0  # of what units keep
    working: Working = field(default_factory=Working)
    remaking: Working = field(default_factory=Working)  # where units recompute activations

    def add(self, unit: UnitCost) -> None:
        self.units.append(unit)
        self.forward += unit.forward
        self.backward += unit.backward
        self.forward_comm += unit.forward_comm
        self.backward_comm += unit.backward_comm
        self.passing += unit.passing
        self.kept += unit.kept
        self.weights += unit.weights
        self.persistent += unit.persistent
        self.largest = max(self.largest, unit.kept)
        self.working.add(unit, 0)
        self.remaking.add(unit, sum(each.nbytes for each in unit.activations))


def unit_time(unit: UnitCost | Stage) -> float:
    """Seconds of both directions, with communication along the tensor axis."""
    return unit.forward + unit.backward + unit.forward_comm + unit.backward_comm


def balanced(times: Sequence[float], count: int) -> list[int]:
    """Where runs of the times end, such that the largest sum of a run is least.

    Later runs are filled first, since earlier stages hold more micro-batches. No run is empty.

    >>> balanced([1, 1, 1, 1, 1, 4], 3)
    [1, 5, 6]
    """
    low, high = max(times), sum(times)
    for _ in range(50):
        most = (low + high) / 2
        low, high = (low, most) if _runs(times, most) <= count else (most, high)
    ends, total, left = [len(times)], 0.0, count - 1
    for at in range(len(times) - 1, -1, -1):
        opened = at + 1 < ends[0]
        if left and opened and (total + times[at] > high * _ROUNDING or at + 1 == left):
            ends.insert(0, at + 1)
            total, left = 0.0, left - 1
        total += times[at]
    return ends


def _runs(times: Sequence[float], most: float) -> int:
    """How many runs it takes, none of which takes longer than `most`."""
    count, total = 1, 0.0
    for time in times:
        if total + time > most * _ROUNDING:
            count, total = count + 1, 0.0
        total += time
    return count


def copied_bytes(units: Mapping[str, UnitCost]) -> int:
    """Bytes of the copies of parameters that are on other meshes, and of their gradients."""
    largest: dict[str, int] = {}
    for unit in units.values():
        for owner, nbytes in unit.borrowed.items():
            if owner not in units:
                largest[owner] = max(largest.get(owner, 0), nbytes)
    return 2 * sum(largest.values())
