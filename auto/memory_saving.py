"""Memory saving: what the units of a mesh make again or keep on the host, until they fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter

from ..graph.hardware import Hardware
from .recomputation import Recomputation, recomputations
from .unit_costs import UnitCost

_EXPOSED = 0.06  # of copies to the host and back, where as much computing is beside them
_BESIDE = 0.9  # of the time of forward, in which copies to the host must be done
NOTHING = Recomputation((), 0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class SavingStep:
    """From one choice of a unit to the next: the bytes that it frees, and what it takes."""

    name: str  # of the unit
    choice: Recomputation
    freed: int
    seconds: float
    price: float  # seconds for each byte


def saving_steps(units: Mapping[str, UnitCost]) -> list[SavingStep]:
    """The choices of all units, each from the one before it, the cheapest first."""
    found = []
    known: dict[int, tuple[Recomputation, ...]] = {}  # layers alike have one list of activations
    for name, unit in units.items():
        choices = known.get(id(unit.activations))
        if choices is None:
            choices = known[id(unit.activations)] = recomputations(unit.activations)
        before = NOTHING
        for choice in choices:
            freed, seconds = choice.freed - before.freed, choice.time - before.time
            found.append(SavingStep(name, choice, freed, seconds, seconds / freed))
            before = choice
    return sorted(found, key=attrgetter("price"))


def seconds_to_free(nbytes: float, steps: Sequence[SavingStep]) -> float:
    """The least seconds in which so many bytes are made again, if a part of a choice could be."""
    seconds = 0.0
    for step in steps:
        share = min(max(nbytes, 0.0) / step.freed, 1.0)
        seconds += share * step.seconds
        nbytes -= share * step.freed
    return seconds


@dataclass(slots=True)
class MemorySaving:
    """What the units of a mesh make again in backward, and which of them wait on the host.

    The mesh needs `need` bytes, and holds activations of `held` micro-batches.
    """

    units: Mapping[str, UnitCost]
    need: float
    held: float = 1.0
    recomputed: dict[str, Recomputation] = field(default_factory=dict)
    offloaded: tuple[str, ...] = ()

    def recompute(self, steps: Sequence[SavingStep], budget: float, price: float = inf) -> None:
        """Take the steps up to a price, the cheapest first, until the need is within the budget."""
        for step in steps:
            if self.need <= budget or step.price > price:
                break
            done = self.recomputed.get(step.name, NOTHING)
            if step.name not in self.offloaded and step.choice.freed > done.freed:
                self.need -= self.held * step.freed
                self.recomputed[step.name] = step.choice

    def offload(
        self, hardware: Hardware, budget: float, stages: Sequence[Sequence[str]] = ()
    ) -> None:
        """Keep units on the host until the need is within the budget, while computing hides it.

        They are as far from each other as can be, so that copies are never many. With `stages` (the
        units of each in order) their copies are beside the forward of the stage.
        """
        kept = {name: self._kept(name) for name in self.units if self._kept(name) > 0}
        most = float(hardware.host_bytes or hardware.memory_bytes) / max(self.held, 1.0)
        if stages:
            hidden = [name for stage in stages for name in self._hidden(stage, hardware)]
            kept = {name: kept[name] for name in hidden}
        else:
            seconds = sum(map(_forward, self.units.values()))
            most = min(_BESIDE * hardware.host_bandwidth * seconds, most)
        some, saved = list(kept), 0.0
        for count in range(1, len(some) + 1):
            spread = tuple([some[at * len(some) // count] for at in range(count)])
            copied = sum(kept[name] for name in spread)
            if self.need - saved <= budget or copied > most:
                break
            self.offloaded, saved = spread, self.held * copied
        self.need -= saved

    def copied(self, names: Iterable[str]) -> int:
        """The bytes of these units that wait on the host, for one micro-batch."""
        return sum(self._kept(name) for name in names if name in self.offloaded)

    def _hidden(self, stage: Sequence[str], hardware: Hardware) -> list[str]:
        """The units of a stage whose copies to the host end before its forward does."""
        kept = [self._kept(name) for name in stage]
        seconds = [_forward(self.units[name]) for name in stage]
        found = beside_forward(kept, seconds, hardware.host_bandwidth)
        return [name for name, nbytes in zip(stage, found, strict=True) if nbytes]

    def _kept(self, name: str) -> int:
        return self.units[name].kept - self.recomputed.get(name, NOTHING).freed


def beside_forward(
    kept: Sequence[int], seconds: Sequence[float], bandwidth: float, parts: bool = False
) -> list[float]:
    """Of the bytes that the units of a stage keep, those whose copies end before its forward does.

    All of a unit or nothing, the most of the last ones first; with `parts` any share of it.

    >>> beside_forward([9, 9, 9], [1.0, 1.0, 1.0], bandwidth=12.0)
    [9.0, 9.0, 0.0]
    >>> beside_forward([9, 9, 9], [1.0, 1.0, 1.0], bandwidth=5.0, parts=True)
    [4.5, 4.5, 0.0]
    """
    room = 0.0
    found: list[float] = []
    for nbytes, each in zip(reversed(kept), reversed(seconds), strict=True):
        hidden = min(float(nbytes), room)
        if hidden < nbytes and not parts:
            hidden = 0.0
        found.append(hidden)
        room += _BESIDE * bandwidth * each - hidden
    return found[::-1]


def offloadable(units: Sequence[UnitCost], hardware: Hardware) -> float:
    """The most bytes of a stage's units that can wait on the host, for one micro-batch."""
    kept, seconds = [unit.kept for unit in units], list(map(_forward, units))
    return sum(beside_forward(kept, seconds, hardware.host_bandwidth, parts=True))


def copy_price(hardware: Hardware) -> float:
    """Seconds for each byte that waits on the host, where computing hides most of them."""
    return 2 * _EXPOSED / hardware.host_bandwidth


def _forward(unit: UnitCost) -> float:
    return unit.forward + unit.forward_comm
