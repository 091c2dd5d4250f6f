"""Estimates: time and memory of a candidate in closed form.

The costs of units are those of a plan (`unit_costs.py`). Formulas give what is around them: the
bubbles of schedules, gradients and gathers over the data axis, messages between stages, and the
activations of the micro-batches in flight. Sources: Narayanan et al. (2021), Qi et al. (2023),
Rajbhandari et al. (2020), Korthikanti et al. (2022).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil

from ..graph.hardware import Hardware
from ..graph.hardware.collective_cost import all_gather, all_reduce, reduce_scatter
from ..graph.schedules.named_schedules import SCHEDULES
from .candidates import Candidate, Layouts
from .lower_bounds import Bounds, Links
from .memory_saving import (
    MemorySaving,
    SavingStep,
    copy_price,
    saving_steps,
    seconds_to_free,
)
from .recomputation import Recomputation
from .stage_sums import Stage, balanced, copied_bytes, unit_time
from .unit_costs import UnitCost, UnitCosts

_HIDDEN = 0.5  # of communication that overlaps with compute, where a program has no stages
_WEIGHTS = 0.5  # of a backward that is for the weights
# Of what recomputing saves, where weights' gradients wait: they need what was recomputed.
_SPLIT_SAVING = 1 / 3
_MOVING = 2.0  # actions of each stage between a forward and its copy's end, and back
_LATER = {"zb-h1": 1, "zb-h2": 2}  # by how many micro-batches weights' gradients wait on each mesh


@dataclass(frozen=True)
class Estimate:
    """What a candidate is expected to take, and what it takes at least."""

    candidate: Candidate
    parts: tuple[tuple[str, ...], ...]
    recomputed: tuple[str, ...]
    saved: tuple[tuple[str, ...], ...]  # the activations that each of these saves nevertheless
    offloaded: tuple[str, ...]
    seconds: float
    bound: float  # seconds below which no plan of it is
    memory: int  # bytes of the rank that needs most
    least: int  # bytes below which no plan of it is
    heavy: tuple[int, ...]  # the meshes, that which needs most first


class Estimator:
    """Estimates for one model, batch and machine."""

    def __init__(
        self,
        hardware: Hardware,
        costs: Callable[[int, Layouts, int], UnitCosts],
        offloads: bool = True,
    ) -> None:
        self.hardware = hardware
        self.offloads = offloads  # whether the host has memory besides the device's
        self.costs = cache(costs)  # of (tensor, layouts, rows)
        self._parts: dict[object, tuple[tuple[str, ...], ...]] = {}
        self._stages: dict[object, list[Stage]] = {}
        self._saving: dict[object, list[SavingStep]] = {}
        self.links = Links(hardware)
        self.bounds = Bounds(hardware, self.links)

    def parts(self, c: Candidate) -> tuple[tuple[str, ...], ...]:
        """The units of each stage: runs of them, such that the slowest stage is fast."""
        key = c.tensor, c.layouts, c.rows, c.stages
        if key not in self._parts:
            costs = self.costs(*key[:3])
            blocks = costs.blocks
            times = [sum(unit_time(costs.units[name]) for name in block) for block in blocks]
            ends = balanced(times, c.stages)
            starts = [0, *ends[:-1]]
            runs = zip(starts, ends, strict=True)
            self._parts[key] = tuple(
                tuple(name for block in blocks[a:b] for name in block) for a, b in runs
            )
        return self._parts[key]

    def estimate(self, c: Candidate, budget: float) -> Estimate:
        """The estimate; of the units so many are offloaded or recomputed that each rank fits."""
        parts, costs = self.parts(c), self.costs(c.tensor, c.layouts, c.rows)
        stages = self._sums(c, parts, costs)
        meshes = self._meshes(c)
        recomputed: dict[str, Recomputation] = {}
        offloaded: list[str] = []
        recompute = [0.0] * c.stages  # seconds that each stage recomputes, for a micro-batch
        recompute_comm = [0.0] * c.stages
        memory, least = [], []
        certain = []  # seconds that each mesh recomputes at least, for a micro-batch
        for mesh in range(c.meshes):
            own = [at for at in range(c.stages) if meshes[at] == mesh]
            held = _held(c, mesh)
            units = {name: costs.units[name] for at in own for name in parts[at]}
            fixed, gradients = self._fixed(c, [stages[at] for at in own], costs)
            copies = copied_bytes(units)
            fixed += copies
            before = self._summing(c, stages, own, held, gradients, budget - fixed)
            saving = self._saved(c, mesh, stages, own, fixed + before, units, budget)
            offloaded += saving.offloaded
            recomputed |= saving.recomputed
            for at in own:
                done = [saving.recomputed[name] for name in parts[at] if name in saving.recomputed]
                recompute[at] = sum(each.seconds for each in done)
                if c.schedule is None:
                    recompute[at] += saving.copied(parts[at]) * copy_price(self.hardware)
                recompute_comm[at] = sum(each.comm for each in done)
            flat = 2 * gradients if c.data > 1 and c.zero < 2 else gradients
            memory.append(int(max(saving.need, fixed + flat)))
            given = sum(min(u.kept, u.given) for at in own for u in stages[at].units)
            # At least there are no groups, and copies while no gradients are.
            groups = self._reserved(c) - self.hardware.context_bytes + copies
            made = min(gradients, sum(stages[at].weights for at in own))
            least.append(int(fixed - groups + max(made, (held - 1) * given)))
            kept = sum(stages[at].kept for at in own)
            largest = max(stages[at].largest for at in own)
            excess = fixed + held * kept - largest - _gathered(c, stages, own) - budget
            staged = c.schedule is not None
            if staged and self.offloads:
                excess -= max(held - _on_its_way(c), 0.0) * saving.room(self.hardware)
            steps = self._saving_steps(c, units) if staged and excess > 0 else ()
            certain.append(seconds_to_free(excess / held, steps))
        order = [name for part in parts for name in part]
        seconds = self._seconds(c, stages, meshes, recompute, recompute_comm, costs)
        bound = self.bounds.bound(c, stages, meshes, certain, costs)
        heavy = sorted(range(c.meshes), key=lambda mesh: -memory[mesh])
        names = sorted(recomputed, key=order.index)
        saved = tuple([recomputed[name].saved for name in names])
        return Estimate(
            c, parts, tuple(names), saved, tuple(offloaded), seconds, bound, max(memory),
            max(least), tuple(heavy),
        )  # fmt: skip

    def _saved(
        self,
        c: Candidate,
        mesh: int,
        stages: Sequence[Stage],
        own: Sequence[int],
        other: float,
        units: Mapping[str, UnitCost],
        budget: float,
    ) -> MemorySaving:
        """What a mesh recomputes or offloads, so that it fits with `other` bytes in use."""
        held, gathered = _held(c, mesh), _gathered(c, stages, own)
        other += (held + _waiting(c, mesh)) * sum(stages[at].kept for at in own)
        need = other + max(stages[at].working.with_gathered(gathered) for at in own)
        if need <= budget:
            return MemorySaving(units, need)
        need = other + max(stages[at].remaking.with_gathered(gathered) for at in own)
        share = _SPLIT_SAVING if (c.schedule or "").startswith("zb-") else 1.0
        saving, steps = MemorySaving(units, need, share * held), self._saving_steps(c, units)
        if self.offloads and c.schedule is None:
            saving.recompute(steps, budget, copy_price(self.hardware))
            saving.offload(self.hardware, budget)
        elif self.offloads:
            # Schedules hide copies: what they cannot take is recomputed.
            moving = _on_its_way(c)
            away = max(saving.held - moving, 0.0) * saving.room(self.hardware)
            saving.recompute(steps, budget + away)
            last = self.parts(c)[
                -1
            ]  # whose backward follows its forward: nothing overlaps with copies
            saving.offload(self.hardware, budget, moving, last)
        saving.recompute(steps, budget)
        return saving

    def _saving_steps(self, c: Candidate, units: Mapping[str, UnitCost]) -> list[SavingStep]:
        key = c.tensor, c.layouts, c.rows, tuple(units)
        if key not in self._saving:
            self._saving[key] = saving_steps(units)
        return self._saving[key]

    def _sums(self, c: Candidate, parts: Sequence[Sequence[str]], costs: UnitCosts) -> list[Stage]:
        key = c.tensor, c.layouts, c.rows, c.stages
        if key not in self._stages:
            found = []
            for part in parts:
                stage = Stage()
                for name in part:
                    stage.add(costs.units[name])
                found.append(stage)
            self._stages[key] = found
        return self._stages[key]

    def _meshes(self, c: Candidate) -> tuple[int, ...]:
        """The mesh of each stage."""
        if c.schedule is None:
            return (0,)
        return SCHEDULES[c.schedule].rank_of(c.stages, c.meshes)

    def _fixed(
        self, c: Candidate, stages: Sequence[Stage], costs: UnitCosts
    ) -> tuple[float, float]:
        """Bytes that a rank always holds, and those of its gradients."""
        weights = sum(stage.weights for stage in stages)
        persistent = sum(stage.persistent for stage in stages)
        states = costs.states * weights
        gradients = float(sum(unit.gradients for stage in stages for unit in stage.units))
        if c.zero >= 1:
            states /= c.data
        if c.zero >= 2:
            gradients = weights / c.data
        if c.zero >= 3:
            persistent = persistent // c.data
        return persistent + states + self._reserved(c), gradients

    def _adding(self, c: Candidate, stages: Sequence[Stage], own: Sequence[int]) -> float:
        """Bytes besides the gradients' sums while that of a micro-batch is added to one of them."""
        sizes = [unit.apart for at in own for unit in stages[at].units]
        return 2.0 * max(sizes) if c.zero < 2 else 0.0

    def _summing(
        self,
        c: Candidate,
        stages: Sequence[Stage],
        own: Sequence[int],
        held: float,
        gradients: float,
        room: float,
    ) -> float:
        """Bytes of the gradients and what adds to them, where a mesh has most activations.

        `room` is there for them and for the activations.
        """
        if c.micro_batches == 1:
            return 0.0
        adding = self._adding(c, stages, own)
        # Backwards of so many chunks begin before the last forward, each for as many micro-batches
        # as there are meshes. They free activations before gradients of the next one are made.
        begun = max(ceil((c.micro_batches - held) * c.chunks / c.meshes), 1) / c.chunks
        if c.schedule == "interleaved" and room * (1 - begun) > gradients + adding:
            return begun * gradients + self._adding(c, stages, own[-1:])
        return gradients + adding

    def _reserved(self, c: Candidate) -> int:
        """Bytes of the driver and of the groups of ranks: along the axes, and to other stages."""
        groups = (c.data > 1) + (c.tensor > 1) + 2 * (c.meshes > 1)
        return self.hardware.context_bytes + groups * self.hardware.communicator_bytes

    def _seconds(
        self,
        c: Candidate,
        stages: Sequence[Stage],
        meshes: Sequence[int],
        recompute: Sequence[float],
        recompute_comm: Sequence[float],
        costs: UnitCosts,
    ) -> float:
        """The expected seconds."""
        count = c.micro_batches
        works, ends = [], []
        for mesh in range(c.meshes):
            own = [at for at, its in enumerate(meshes) if its == mesh]
            compute = sum(stages[at].forward + stages[at].backward + recompute[at] for at in own)
            comm = sum(
                stages[at].forward_comm + stages[at].backward_comm + recompute_comm[at]
                for at in own
            )
            often, once = self._over_data(c, [stages[at] for at in own], costs)
            if c.schedule is None:
                data = often * count + once
                busy = count * (compute + comm)
                works.append(max(busy, data) + (1 - _HIDDEN) * min(busy, data))
                ends.append(self._update(c, [stages[at] for at in own], costs))
                continue
            works.append(compute + comm + often)
            ends.append(once + self._update(c, [stages[at] for at in own], costs))
        if c.schedule is None:
            return works[0] + ends[0]
        first = range(c.meshes)  # stages; all meshes have one of them
        fills = [stages[at].forward + stages[at].forward_comm for at in first]
        backs = [
            stages[at].backward + stages[at].backward_comm + recompute[at] + recompute_comm[at]
            for at in first
        ]
        hop = self.links.hop(c, stages)
        seconds = count * max(works) + self._bubble(c, fills, backs, works) + max(ends)
        return seconds + 2 * hop * c.chunks * (c.meshes - 1) * (1 + count / c.meshes)

    def _bubble(
        self, c: Candidate, fills: Sequence[float], backs: Sequence[float], works: Sequence[float]
    ) -> float:
        """Seconds in which the slowest mesh waits."""
        slowest = max(range(c.meshes), key=works.__getitem__)
        both = sum(fills) + sum(backs) - fills[slowest] - backs[slowest]
        forward = sum(fills) - fills[slowest]
        backward = sum(backs) - backs[slowest]
        if c.schedule == "zb-h1":
            return both - _WEIGHTS * backward
        if c.schedule == "zb-h2":
            return max(0.0, both - 2 * _WEIGHTS * backward - forward)
        if c.schedule == "zb-v":
            return 0.1 * both
        return both

    def _update(self, c: Candidate, stages: Sequence[Stage], costs: UnitCosts) -> float:
        weights = sum(stage.weights for stage in stages)
        return costs.update * weights / (c.data if c.zero else 1)

    def _over_data(
        self, c: Candidate, stages: Sequence[Stage], costs: UnitCosts
    ) -> tuple[float, float]:
        """Seconds of communication along the data axis, for each micro-batch and once."""
        if c.data == 1:
            return 0.0, 0.0
        group = self.links.span(c.data, c.tensor)
        weights = sum(stage.weights for stage in stages)
        if c.zero == 0:
            return 0.0, all_reduce(group, weights)
        if c.zero == 1:
            return 0.0, reduce_scatter(group, weights) + all_gather(group, weights)
        units = Counter((u.weights, u.low) for stage in stages for u in stage.units if u.weights)
        reduced = sum(alike * reduce_scatter(group, size) for (size, _), alike in units.items())
        if c.zero == 2:
            return reduced, all_gather(group, weights)
        gathered = sum(alike * all_gather(group, low) for (_, low), alike in units.items())
        return reduced + 2 * gathered, 0.0


def _gathered(c: Candidate, stages: Sequence[Stage], own: Sequence[int]) -> float:
    """Bytes of whole gradients and weights that ZeRO has besides the shards.

    A weight is gathered where it is read, and a gradient reduced while the next one is made.
    """
    if c.data == 1 or c.zero < 2:
        return 0.0
    units = [unit for at in own for unit in stages[at].units if unit.weights]
    weights = [unit.low / unit.weights if c.zero == 3 else 0.0 for unit in units]
    sizes = [(2 + low) * unit.largest for low, unit in zip(weights, units, strict=True)]
    return max(sizes, default=0.0)


def _held(c: Candidate, mesh: int) -> float:
    """The micro-batches of all its stages that a mesh holds at once."""
    if c.schedule is None:
        return 1
    count = SCHEDULES[c.schedule].held(mesh, c.meshes, c.chunks, c.micro_batches)
    if count is None:
        count = min(c.micro_batches * c.chunks, c.chunks * c.meshes)
    return count / c.chunks


def _on_its_way(c: Candidate) -> float:
    """The micro-batches whose offloaded activations are on the device: one computes or is fetched,
    and another is being copied.
    """
    return _MOVING / c.chunks


def _waiting(c: Candidate, mesh: int) -> float:
    """The micro-batches whose backward is done but for the weights' gradients."""
    return float(_LATER.get(c.schedule or "", 0) * min(mesh, c.micro_batches))
