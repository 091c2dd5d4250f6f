"""Hardware costs: the seconds of ops and boxings on described hardware, by layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, floor, log

import torch

from ...engine import boxing
from ...engine.meta import Meta
from ..hardware import Hardware
from ..ir import ProgramStep, Value
from ..layouts.layout_costs import Boxing, boxing_of, local_elements
from .comm_costs import CommCosts
from .step_costs import StepCosts

_GRID = 4.0  # the ratio of neighboring sizes at which boxings are timed


class HardwareCosts:
    """The costs of the simulator, on the first rank of a mesh: it has the largest shards.

    A boxing on one placement is timed for a few sizes; others lie on the line between two.
    """

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self._communication = CommCosts(hardware)
        self._steps: dict[int, StepCosts] = {}  # by rank
        self._times: dict[tuple[Boxing, int], tuple[float, float]] = {}

    def op(
        self, step: ProgramStep, inputs: Sequence[Meta | None], outputs: Sequence[Meta]
    ) -> float:
        if not outputs or outputs[0].placement is None:
            return 0.0
        pairs = zip(step.inputs, inputs, strict=True)
        taken = tuple([each if meta is None else Value(0, meta) for each, meta in pairs])
        made = tuple([Value(0, meta) for meta in outputs])
        costs = self._costs(outputs[0].placement.flat_ranks[0])
        return costs.of(replace(step, inputs=taken, outputs=made)).seconds

    def boxing(self, src: Meta, dst: Meta) -> float:
        if src is dst:
            return 0.0
        found = boxing_of(src, dst)
        if found is None:
            return self._planned(src, dst)
        boxed, nbytes = found
        place = log(max(nbytes, 1.0), _GRID)
        low, less = self._timed(boxed, floor(place))
        high, more = self._timed(boxed, ceil(place))
        if more <= less:
            return low
        return max(0.0, low + (high - low) * (nbytes - less) / (more - less))

    def update(self, parameter: Meta, kept: float) -> float:
        moved = 3.0 * parameter.dtype.itemsize + 2.0 * kept
        rank = parameter.global_placement.flat_ranks[0]
        return self._costs(rank).moving(local_elements(parameter) * moved)

    def _timed(self, boxed: Boxing, power: int) -> tuple[float, float]:
        """Seconds of a boxing of about so many bytes, and the bytes."""
        key = boxed, power
        if key not in self._times:
            smallest = boxed.metas(torch.uint8)[0].nbytes
            ends = boxed.metas(torch.uint8, max(1, round(_GRID**power / smallest)))
            self._times[key] = self._planned(*ends), float(ends[0].nbytes)
        return self._times[key]

    def _planned(self, src: Meta, dst: Meta) -> float:
        ranks = {each.global_placement.flat_ranks[0] for each in (src, dst)}
        steps = boxing.plan(src, dst).steps
        return max(self._communication.of(steps, rank, self._costs(rank)).seconds for rank in ranks)

    def _costs(self, rank: int) -> StepCosts:
        if rank not in self._steps:
            self._steps[rank] = StepCosts(self.hardware, rank)
        return self._steps[rank]
