"""Choices: the candidates of a search, their estimates, and the strategies that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from math import inf

from tqdm import tqdm

from ..engine.cluster import planning
from ..errors import OnefoldValueError
from ..graph.hardware import Hardware
from ..parallel.layout_plan import Plan
from .candidates import Candidate, Layouts, Space, divisors
from .estimates import Estimate, Estimator
from .measuring import Measuring
from .model_units import units_of
from .search_arguments import check_model
from .stage_sums import unit_time
from .strategy import Strategy
from .table_choice import table_for
from .training_task import Task
from .unit_costs import UnitCosts


class Choices:
    """What there is to choose for one model, batch and machine, within `budget` bytes of a rank."""

    def __init__(
        self,
        task: Task,
        hardware: Hardware,
        budget: int,
        plan: Plan | None,
        schedules: Sequence[str],
    ) -> None:
        self.task = task
        self.hardware = hardware
        self.budget = budget
        self.schedules = schedules
        with planning(1):
            model = task.build_model()
            check_model(model)
            self.units = units_of(model)
            self.table = table_for(model, plan, self.units)
            self.planned = plan is not None
        self.measuring = Measuring(task, hardware)
        self.estimator = Estimator(hardware, self._costs, offloads=task.device != "cpu")
        self._shares: dict[tuple[int, int], float] = {}  # by ranks of the tensor axis, and rows

    @property
    def blocks(self) -> int:
        """How many modules, or runs of those that must be together, can be stages."""
        return max(len(self.estimator.costs(1, "table", 1).blocks), 1)

    def space(self, size: int) -> Space:
        """The candidates for so many ranks. Raises OnefoldValueError where there are none."""
        task = self.task
        near = min(self.hardware.links[0].ranks, size)
        tensors = [n for n in divisors(size) if n <= near and (n == 1 or self.table.divides(n))]
        rows = task.rows
        zeros = (0, 1, 2, 3)
        layouts = self._by_table()
        space = Space(size, rows, self.blocks, tensors, layouts, self.schedules, zeros)
        if next(space.candidates(), None) is None:
            fit = [n for n in divisors(size) if rows % n == 0]
            raise OnefoldValueError(
                f"search: {size:,} ranks cannot share a batch of {rows:,} rows and a model of "
                f"{self.blocks} modules that can be stages: ranks = stages x data x tensor, where "
                f"the data axis divides the batch ({', '.join(map(str, fit))} would), the tensor "
                f"axis is one of {', '.join(map(str, tensors))}, and there are at most "
                f"{self.blocks} stages. Change the size of the batch or of the cluster"
            )
        return space

    def _by_table(self) -> Layouts:
        """How the table splits a stage.

        A batch with a dim of positions, tokens or vectors at positions, has a sequence. To split
        it sends as many bytes, and keeps and computes less.
        """
        first = self.task.batch[0]
        ndim = 3 if first.dtype.is_floating_point else 2
        return "sequence" if self.table.sequence and len(first.shape) == ndim else "table"

    def _costs(self, tensor: int, layouts: Layouts, rows: int) -> UnitCosts:
        return self.measuring.measure(self.layout(tensor, layouts, rows, size=tensor), rows)

    def estimates(self, space: Space) -> list[Estimate]:
        """An estimate of each candidate; larger parts of the batch only while smaller ones fit."""
        found: list[Estimate] = []
        candidates = sorted(space.candidates(), key=lambda c: (*_axes(c), c.rows))
        groups = [list(group) for _, group in groupby(candidates, key=_axes)]
        bar = tqdm(groups, "estimating", leave=False, delay=1.0)
        for group in bar:
            over = False
            for count, some in groupby(group, key=lambda c: c.micro_batches):
                # A batch that is not cut adds no gradients up, and may fit where its parts do not.
                if over and count > 1:
                    continue
                estimates = [self.estimator.estimate(c, self.budget) for c in some]
                found += estimates
                over = over or min(each.least for each in estimates) > self.budget
        return found

    def searched_estimates(
        self, by_table: Sequence[Estimate], most: int | None = None
    ) -> list[Estimate]:
        """Estimates of candidates whose layouts inside a stage are those of the exact search.

        They are the `most` promising of those that would be the fastest of all if they did not
        communicate along the tensor axis, and did no part of the work on several of its ranks.
        There are none where the caller gave the table.
        """
        if self.planned:
            return []
        fitting = [each.seconds for each in by_table if each.memory <= self.budget]
        fastest = min(fitting, default=inf)
        split = [each for each in by_table if each.candidate.tensor > 1]
        least = {each.candidate: each.seconds * self._least_share(each.candidate) for each in split}
        promising = sorted((c for c in least if least[c] <= fastest), key=least.__getitem__)
        return [
            self.estimator.estimate(replace(c, layouts="searched"), self.budget)
            for c in promising[:most]
            if self.searched(c.tensor, c.rows) is not None
        ]

    def _least_share(self, c: Candidate) -> float:
        """The share of what units take by the table that other layouts take at least."""
        key = c.tensor, c.rows
        if key not in self._shares:
            one = self.estimator.costs(1, "table", c.rows).units
            units = self.estimator.costs(c.tensor, c.layouts, c.rows).units
            least = sum(
                min(unit.forward, one[name].forward / c.tensor)
                + min(unit.backward, one[name].backward / c.tensor)
                for name, unit in units.items()
            )
            total = sum(unit_time(unit) for unit in units.values())
            self._shares[key] = least / total if total else 1.0
        return self._shares[key]

    def layout(self, tensor: int, layouts: Layouts, rows: int, size: int) -> Strategy:
        """The layout of a mesh that has no data axis yet."""
        if layouts == "searched":
            found = self.searched(tensor, rows)
            assert found is not None
            return replace(found, size=size)
        return Strategy(
            size=size,
            tensor=tensor,
            table=self.table.rules if tensor > 1 else (),
            sequence_dim=1 if layouts == "sequence" else None,
            amp=self.task.amp,
            device=self.task.device,
        )

    def searched(self, tensor: int, rows: int) -> Strategy | None:
        """The layout by search, where it is better than that by the table."""
        by_table = self.layout(tensor, self._by_table(), rows, size=tensor)
        return self.measuring.searched(by_table, rows)

    def strategy(self, estimate: Estimate) -> Strategy:
        """The strategy of an estimate."""
        c = estimate.candidate
        costs = self.estimator.costs(c.tensor, c.layouts, c.rows)
        staged = c.schedule is not None
        stage_of = {name: at for at, part in enumerate(estimate.parts) for name in part}
        inputs = [stage_of.get(name, 0) if staged else 0 for name in costs.readers]
        return replace(
            self.layout(c.tensor, c.layouts, c.rows, c.meshes * c.data * c.tensor),
            data=c.data,
            parts=estimate.parts if staged else ((),),
            inputs=tuple(inputs),
            micro_batches=c.micro_batches,
            schedule=c.schedule,
            zero=c.zero,
            recomputed=estimate.recomputed,
            saved=estimate.saved if any(estimate.saved) else (),
            offloaded=estimate.offloaded,
        )


def _axes(c: Candidate) -> tuple[int, Layouts, int, int]:
    return c.tensor, c.layouts, c.meshes, c.data
