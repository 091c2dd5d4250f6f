"""Best layouts: those of a program's parameters, inputs and ops that take the least time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...engine.sbp import NdSbp, short
from ...errors import OnefoldValueError
from ..ir import Program
from ..passes.cse import eliminate_common
from ..passes.dead_code import eliminate_dead
from .cost_graph import CostGraph, Freedom, Training
from .elimination import TABLE_SIZE, solve
from .layout_costs import LayoutCosts, ModeledCosts
from .memory_budget import solve_within

_ALONE = Training()


@dataclass(frozen=True)
class LayoutChoice:
    """The layouts that were found, and the time and memory of a training step with them."""

    parameters: Mapping[str, NdSbp]  # by name, those with a gradient
    inputs: Mapping[str, NdSbp]  # by name
    seconds: float  # of a step
    lower_bound: float  # no layouts take less
    bytes: float  # of parameters, gradients, optimizer state and saved activations on a rank
    start: float  # seconds with the layouts that the program had

    def __str__(self) -> str:
        rows = [f"{name}: {short(sbp)}" for name, sbp in {**self.inputs, **self.parameters}.items()]
        rows.append(
            f"{self.seconds:.3g} s, at least {self.lower_bound:.3g} s, before {self.start:.3g} s"
        )
        rows.append(f"{self.bytes:,.0f} bytes on a rank")
        return "\n".join(rows)


def best_layouts(
    program: Program,
    *,
    cost: LayoutCosts | None = None,
    memory: float | None = None,
    parameters: Iterable[str] | None = None,
    inputs: bool = True,
    training: Training = _ALONE,
    table_size: int = TABLE_SIZE,
) -> LayoutChoice:
    """The fastest layouts among those that need at most `memory` bytes on a rank.

    `program` is captured, of one micro-batch, without updates (`Compiled.captured`). Chosen are the
    layouts of its `parameters` with gradients (by name; None: of all), of its `inputs`, and of
    every op. `cost` gives the seconds of ops and boxings, by default those of eager mode.
    `training` says what surrounds the program in a step. The result is the least of the modeled
    costs, which count one copy of a value besides the value itself, unless `lower_bound` is less.
    Raises OnefoldValueError for parameters that are not in the program and for a budget that no
    layouts meet.
    """
    if program.updates:
        raise OnefoldValueError(
            "best_layouts needs a program without the optimizers' steps, but this one has them; "
            "give it the program as it was captured"
        )
    program = eliminate_dead(eliminate_common(program))
    trained = {variable.value.name for variable, _ in program.gradients}
    chosen = frozenset(trained if parameters is None else parameters)
    unknown = sorted(chosen - trained)
    if unknown:
        raise OnefoldValueError(
            f"best_layouts: parameters has {', '.join(map(repr, unknown))}, but the parameters "
            f"with gradients are {', '.join(map(repr, sorted(trained)))}"
        )
    freedom = Freedom(chosen, gradients=True, inputs=inputs, outputs=True)
    graph = CostGraph(program, cost or ModeledCosts(), freedom, training)
    network = graph.network
    if memory is None:
        found = solve(network, table_size)
    else:
        found = solve_within(network, memory, table_size, " bytes")
    stored = graph.stored(found.states)
    return LayoutChoice(
        {v.value.name: stored[v.value.number].nd_sbp for v, _ in program.gradients},
        {value.name: stored[value.number].nd_sbp for value in program.inputs},
        found.cost,
        found.lower_bound,
        network.used(found.states),
        network.total(graph.start()),
    )
