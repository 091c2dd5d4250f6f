"""Memory saving: what the units of a mesh recompute or keep on the host, until they fit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter

from ..graph.hardware import Hardware
from .recomputation import Recomputation, recomputations
from .unit_costs import UnitCost

_EXPOSED = 0.06  # of copies to the host and back, if as much compute overlaps with them
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
    """The least seconds in which so many bytes are recomputed, if a part of a choice could be."""
    seconds = 0.0
    for step in steps:
        share = min(max(nbytes, 0.0) / step.freed, 1.0)
        seconds += share * step.seconds
        nbytes -= share * step.freed
    return seconds


@dataclass(slots=True)
class MemorySaving:
    """What the units of a mesh recompute in backward, and which of them wait on the host.

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
        self,
        hardware: Hardware,
        budget: float,
        on_its_way: float = 0.0,
        staying: Collection[str] = (),
    ) -> None:
        """Keep units on the host until the need is within the budget, while computing hides it.

        They are as far from each other as can be, so that copies are never many. Of the
        micro-batches that are held so many are on their way, and their activations on the device.
        The units `staying` are not offloaded.
        """
        kept = {name: self._kept(name) for name in self.units if name not in staying}
        kept = {name: nbytes for name, nbytes in kept.items() if nbytes > 0}
        most, times = self.room(hardware), max(self.held - on_its_way, 0.0)
        some, saved = list(kept) if times else [], 0.0
        for count in range(1, len(some) + 1):
            spread = tuple([some[at * len(some) // count] for at in range(count)])
            copied = sum(kept[name] for name in spread)
            if self.need - saved <= budget or copied > most:
                break
            self.offloaded, saved = spread, times * copied
        self.need -= saved

    def room(self, hardware: Hardware) -> float:
        """The bytes of a micro-batch that can wait on the host while computing hides the copies."""
        seconds = sum(unit.forward + unit.forward_comm for unit in self.units.values())
        host = float(hardware.host_bytes or hardware.memory_bytes)
        return min(_BESIDE * hardware.host_bandwidth * seconds, host / max(self.held, 1.0))

    def copied(self, names: Iterable[str]) -> int:
        """The bytes of these units that wait on the host, for one micro-batch."""
        return sum(self._kept(name) for name in names if name in self.offloaded)

    def _kept(self, name: str) -> int:
        return self.units[name].kept - self.recomputed.get(name, NOTHING).freed


def copy_price(hardware: Hardware) -> float:
    """Seconds for each byte that waits on the host, where computing hides most of them."""
    return 2 * _EXPOSED / hardware.host_bandwidth
