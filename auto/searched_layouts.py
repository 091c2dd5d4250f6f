"""Searched layouts: those of a model's parameters by exact search, as rules for their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from ..engine.sbp import NdSbp
from ..graph.hardware import Hardware
from ..graph.ir import Program
from ..graph.layouts import CostGraph, Freedom, LayoutChoice, Training, best_layouts
from ..graph.simulator import HardwareCosts
from .model_units import Units
from .strategy import style_of

_GAIN = 0.01  # of the time: less is not worth another way to lay a model out


def choose_layouts(
    program: Program, by_table: Program, states: float, hardware: Hardware
) -> LayoutChoice | None:
    """The layouts of parameters that take the least time, in no more memory than `by_table` takes.

    None where they take about as long. Both programs are captured, of one model on one mesh; the
    parameters of `program` are broadcast. The optimizer keeps `states` bytes for each byte of them.
    """
    costs = HardwareCosts(hardware)
    sizes = [variable.value.meta.dtype.itemsize for variable, _ in program.gradients]
    training = Training(kept=states * max(sizes, default=4))
    laid = CostGraph(by_table, costs, Freedom(gradients=True), training)
    start = laid.start()
    memory, seconds = laid.network.used(start), laid.network.total(start)
    found = best_layouts(program, cost=costs, memory=memory, inputs=False, training=training)
    return found if found.seconds < (1 - _GAIN) * seconds else None


def rules_of(
    found: Mapping[str, NdSbp], names: Sequence[str], units: Units
) -> tuple[tuple[str, str], ...]:
    """Rules, as patterns and names of styles, for the parameters `names` of a whole model.

    `found` are the layouts of those of the smaller one along one axis. Layers that are alike share
    their rules.

    >>> from onefold.engine.sbp import broadcast, split
    >>> found = {"layers.0.weight": (split(0),), "head.weight": (broadcast,)}
    >>> like = {"layers.0": "layers.0", "layers.1": "layers.0", "head": "head"}
    >>> units = Units(tuple(like), like, "layers", ("layers.0", "head"))
    >>> rules_of(found, ["layers.0.weight", "layers.1.weight", "head.weight"], units)
    (('layers.*.weight', 'S0'), ('head.weight', 'replicate'))
    """
    styles: dict[str, str] = {}
    rules: dict[str, str] = {}
    patterns: dict[str, str] = {}
    for name in names:
        unit = _unit(name, units)
        rest = name.removeprefix(unit)
        (sbp,) = found[units.like.get(unit, unit) + rest]
        styles[name] = style_of(sbp)
        lead, _, number = unit.rpartition(".")
        patterns[name] = f"{lead}.*{rest}".lstrip(".") if number.isdecimal() else name
    for name in names:
        pattern = patterns[name]
        if pattern not in rules:
            matched = {styles[other] for other in names if fnmatchcase(other, pattern)}
            rules[pattern if len(matched) == 1 else name] = styles[name]
    return tuple(rules.items())


def _unit(name: str, units: Units) -> str:
    """The unit that has a parameter; "" for one outside the units."""
    parts = name.split(".")[:-1]
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in units.like), "")
