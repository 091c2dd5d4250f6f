"""Measuring: the unit costs and the best layouts of one mesh, from steps of a smaller model.

The smaller model has three layers of each kind. It is compiled for the ranks of one tensor axis,
and the costs of its steps, by the hardware's data, are added up by unit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TypeVar

from ..engine.cluster import planning
from ..engine.sbp import NdSbp, broadcast
from ..errors import OnefoldError
from ..graph.compiled_graph import Compiled
from ..graph.hardware import Hardware
from ..graph.ir import Program
from ..graph.job_summary import alike, metas_of
from ..graph.memory_traffic import local_bytes
from ..graph.simulator.rank_work import Tasks
from ..nn.module import Module
from .model_units import ROOT, Units, shortened, units_of
from .searched_layouts import choose_layouts, rules_of
from .strategy import Strategy, style_of
from .training_task import Task
from .unit_costs import UnitCosts, read_costs

R = TypeVar("R")


class Measuring:
    """Measures the costs of units; the smaller model is made once, and copied."""

    def __init__(self, task: Task, hardware: Hardware) -> None:
        self.task = task
        self.hardware = hardware
        with planning(1):
            self._whole = task.build_model()
            self._whole_units = units_of(self._whole)
            self._small = task.build_model()
            self._small_units = shortened(self._small, self._whole_units)
        self._names = [name for name, _ in self._whole.named_parameters(remove_duplicate=False)]
        self._searched: dict[tuple[Strategy, int], Strategy | None] = {}

    def measure(self, strategy: Strategy, rows: int) -> UnitCosts:
        """The costs of units for `rows` rows of the batch on each rank of one mesh.

        `strategy` is one mesh without data parallelism. Raises what compiling the model raises.
        """
        return self._on_model(self._measure, strategy, rows)

    def searched(self, strategy: Strategy, rows: int) -> Strategy | None:
        """The same mesh with the layouts that take the least time in no more memory, by search.

        None where they gain next to nothing, and where the model cannot be laid out so.
        """
        key = strategy, rows
        if key not in self._searched:
            try:
                self._searched[key] = self._on_model(self._search, strategy, rows)
            except OnefoldError:
                self._searched[key] = None
        return self._searched[key]

    def _on_model(
        self, of: Callable[[Strategy, int, Module, Units], R], strategy: Strategy, rows: int
    ) -> R:
        """What is found with the smaller model.

        Where it cannot run, since it counts on all of its layers, the whole one takes its place.
        """
        try:
            return of(strategy, rows, self._small, self._small_units)
        except Exception:
            if self._small_units is self._whole_units:
                raise
            found = of(strategy, rows, self._whole, self._whole_units)
            self._small, self._small_units = self._whole, self._whole_units
            return found

    def _measure(self, strategy: Strategy, rows: int, like: Module, units: Units) -> UnitCosts:
        with planning(strategy.size):
            compiled = self._compiled(strategy, rows, like)
            tasks = Tasks(self.hardware, alike(metas_of(compiled.program, None)) or [(0,)])
            return read_costs(compiled.program, compiled.captured, tasks, units)

    def _search(self, strategy: Strategy, rows: int, like: Module, units: Units) -> Strategy | None:
        everywhere = (("*", style_of(broadcast)),)
        whole = replace(strategy, table=everywhere, sequence_dim=None)
        with planning(strategy.size):
            by_table = self._compiled(strategy, rows, like).captured
            compiled = self._compiled(whole, rows, like)
            found = choose_layouts(
                compiled.captured, by_table, _states(compiled.program), self.hardware
            )
        if found is None:
            return None
        laid: dict[str, NdSbp] = {}
        first: dict[int, str] = {}
        for name, param in like.named_parameters(remove_duplicate=False):
            shared = first.setdefault(id(param), name)
            laid[name] = found.parameters.get(f"{ROOT}.{shared}", (broadcast,))
        return replace(whole, table=rules_of(laid, self._names, units), layout_search=True)

    def _compiled(self, strategy: Strategy, rows: int, like: Module) -> Compiled:
        names = [name for name, _ in like.named_parameters(remove_duplicate=False)]
        table = [rule for rule in strategy.table if any(fnmatchcase(n, rule[0]) for n in names)]
        inputs = (0,) * len(self.task.batch)
        strategy = replace(strategy, inputs=inputs, table=tuple(table))
        return self.task.step(strategy, copy.deepcopy(like), rows)._latest("search")


def _states(program: Program) -> float:
    """Bytes of the optimizer's state for each byte of weights."""
    trained = {id(variable.tensor) for variable, _ in program.gradients}
    weights = [v.value for v in program.variables if id(v.tensor) in trained]
    total = sum(local_bytes(value.meta, 0) for value in weights)
    return sum(local_bytes(value.meta, 0) for value in program.states) / total if total else 0.0
