"""Graph layouts: the layouts for which a call of a graph would take the least time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .. import graph as on_demand
from ..errors import OnefoldRuntimeError, OnefoldTypeError
from ..graph.layouts import LayoutChoice, Training, best_layouts as best_of
from .graph import Graph

if TYPE_CHECKING:
    from ..graph.hardware import Hardware


def best_layouts(
    graph: Graph,
    hardware: str | Path | Hardware | None = None,
    *,
    memory: float | None = None,
) -> LayoutChoice:
    """The layouts of a graph's parameters and inputs with which a call takes the least time.

    They are for the latest used compiled graph; layouts of ops are chosen with them. Times are
    those of `hardware` (as of `Graph.simulate`), by default those by which eager mode chooses. Only
    layouts count whose parameters, gradients, optimizer state and saved activations need at most
    `memory` bytes on a rank. Nothing changes; see
    `GraphConfig.enable_auto_parallel_ignore_user_sbp_config`. Raises OnefoldRuntimeError before the
    first compile and for a graph with stages, OnefoldValueError for unknown hardware and where no
    layouts need so little memory.
    """
    if not isinstance(graph, Graph):
        raise OnefoldTypeError(f"best_layouts needs an nn.Graph, but got {type(graph).__name__}")
    compiled = graph._latest("best_layouts")
    if compiled.stages is not None:
        raise OnefoldRuntimeError(
            "best_layouts: the graph has stages, and each of them has a time and memory of its "
            "own; ask for a graph of one stage, or call config.enable_auto_parallel()"
        )
    cost = None
    if hardware is not None:
        cost = on_demand.simulator.HardwareCosts(on_demand.hardware.read(hardware))
    training = Training(graph.config.micro_batches)
    return best_of(compiled.captured, cost=cost, memory=memory, training=training)
