"""Graph layouts: the best layouts for a compiled graph, on described hardware."""

from __future__ import annotations

from pathlib import Path

from ...errors import OnefoldRuntimeError
from ..compiled_graph import Compiled
from ..hardware import Hardware, read
from ..layouts import LayoutChoice, Training, best_layouts
from .hardware_costs import HardwareCosts


def graph_layouts(
    compiled: Compiled,
    hardware: str | Path | Hardware | None = None,
    memory: float | None = None,
    micro_batches: int = 1,
) -> LayoutChoice:
    """The layouts of parameters and inputs for which a call would take the least time.

    Layouts of ops are chosen with them. Times are those of `hardware` (as of `simulate`), by
    default those by which eager mode chooses. Only layouts count whose parameters, gradients,
    optimizer state and saved activations need at most `memory` bytes on a rank. Raises
    OnefoldRuntimeError for a graph with stages, OnefoldValueError for unknown hardware and where
    no layouts need so little memory.
    """
    if compiled.stages is not None:
        raise OnefoldRuntimeError(
            "best_layouts: the graph has stages, and each of them has a time and memory of its own; "
            "ask for the layouts of a graph of one stage, or call config.enable_auto_parallel()"
        )
    cost = None if hardware is None else HardwareCosts(read(hardware))
    training = Training(micro_batches)
    return best_layouts(compiled.captured, cost=cost, memory=memory, training=training)
