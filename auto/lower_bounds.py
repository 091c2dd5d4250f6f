"""Lower bounds: seconds that no plan of a candidate is below, by the costs of its units."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..graph.hardware import Hardware
from ..graph.hardware.collective_cost import (
    Span,
    all_gather,
    all_reduce,
    message,
    reduce_scatter,
    span,
)
from .candidates import Candidate
from .stage_sums import Stage, unit_time
from .unit_costs import UnitCosts


class Links:
    """The links of a machine, between the ranks of a candidate."""

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self._spans: dict[tuple[int, int], Span] = {}

    def span(self, data: int, tensor: int) -> Span:
        """The ranks of a data axis, given a tensor axis."""
        if (data, tensor) not in self._spans:
            ranks = range(0, data * tensor, tensor)
            self._spans[data, tensor] = span(self.hardware, ranks)
        return self._spans[data, tensor]

    def hop(self, c: Candidate, stages: Sequence[Stage], of: Callable[..., int] = max) -> float:
        """Seconds from one stage to the next: the largest messages, or the smallest."""
        if c.meshes == 1:
            return 0.0
        link = self.hardware.level(0, c.data * c.tensor)
        sizes = [stage.units[-1].given for stage in stages[:-1] if stage.units]
        return message(link, of(sizes, default=0))


class Bounds:
    """Lower bounds for one machine."""

    def __init__(self, hardware: Hardware, links: Links) -> None:
        self.hardware = hardware
        self.links = links

    def bound(
        self,
        c: Candidate,
        stages: Sequence[Stage],
        meshes: Sequence[int],
        certain: Sequence[float],
        costs: UnitCosts,
    ) -> float:
        """Seconds below which no plan is; `certain` are recomputed for a micro-batch."""
        if c.schedule is None:
            return self._unstaged(c, stages, certain[0], costs)
        # Ranks of a stage communicate along their axes in turn with computing, as the executor
        # does. Micro-batches reach a mesh through the first stages of those before it, and their
        # gradients go back through them; then those have an end of their own.
        bound = early = back = latest = 0.0
        hop = self.links.hop(c, stages, min)
        for mesh in range(c.meshes):
            own = [stages[at] for at, its in enumerate(meshes) if its == mesh]
            work = certain[mesh] + sum(unit_time(stage) for stage in own)
            end = self._end(c, own, costs)
            rest = max(end, latest + back)
            bound = max(bound, early + c.micro_batches * work + rest)
            early += stages[mesh].forward + stages[mesh].forward_comm + hop
            if not c.schedule.startswith("zb"):
                latest = max(latest, end - back)
                back += stages[mesh].backward + stages[mesh].backward_comm + hop
        return bound

    def _unstaged(
        self, c: Candidate, stages: Sequence[Stage], certain: float, costs: UnitCosts
    ) -> float:
        """The same where communication overlaps with compute, and slows it down.

        Computing takes at least so long as without communication over the data axis, each stream is
        busy for its time, and compute that overlaps with communication takes `contention` times as
        long.
        """
        (stage,) = stages
        update = self._written(c, stages, costs)
        count = c.micro_batches
        compute = count * (stage.forward + stage.backward + certain) + update
        moved = count * (stage.forward_comm + stage.backward_comm)
        moved += self._end(c, stages, costs) - update
        slowed = compute + moved * (1 - 1 / self.hardware.contention)
        return max(count * (stage.passing + certain) + update, moved, slowed)

    def _end(self, c: Candidate, stages: Sequence[Stage], costs: UnitCosts) -> float:
        """Seconds of an update, and over the data axis, once for all micro-batches.

        Gradients may be sent as they are made or as they are stored, and all at once, which takes
        no longer than one after the other. Weights may be gathered while a mesh waits for others.
        """
        update = self._written(c, stages, costs)
        if c.data == 1:
            return update
        units = [unit for stage in stages for unit in stage.units]
        group = self.links.span(c.data, c.tensor)
        reduced = sum(min(unit.gradients, unit.weights) for unit in units)
        gathered = sum(min(unit.low, unit.weights) for unit in units)
        if c.zero == 0:
            return update + all_reduce(group, reduced)
        update += reduce_scatter(group, reduced)
        return update if c.zero == 3 and c.meshes > 1 else update + all_gather(group, gathered)

    def _written(self, c: Candidate, stages: Sequence[Stage], costs: UnitCosts) -> float:
        """Seconds of an update that reads and writes weights and states at the full bandwidth."""
        weights = sum(stage.weights for stage in stages)
        moved = 2 * weights * (1 + costs.states) / (c.data if c.zero else 1)
        return moved / self.hardware.memory_bandwidth
