"""The strategies of the GPT example: which ranks hold which layers, and how they are laid out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from layouts import Layout

import onefold as flow

B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)
Sbp: TypeAlias = "flow.sbp.sbp | tuple[flow.sbp.sbp, ...]"
STRATEGIES = {
    "single": "one rank holds everything",
    "dp": "data parallel: every rank holds all layers and works on its part of the batch",
    "tp": "tensor parallel: every rank holds a part of every layer and works on the whole batch",
    "pp": "pipeline parallel: every rank is a stage and holds some of the layers",
    "mixed": "two stages: the first half of the ranks is data parallel, the second tensor parallel",
}
STAGED = ("pp", "mixed")


@dataclass(frozen=True)
class Stage:
    """Where some of the layers live, and how they are laid out there."""

    placement: flow.placement
    data: Sbp  # of activations (batch, length, channels)
    columns: Sbp  # of weights (out, in) whose outputs may be split
    rows: Sbp  # of weights (out, in) that take those
    whole: Sbp = B  # of all other weights

    @staticmethod
    def data_parallel(placement: flow.placement) -> Stage:
        return Stage(placement, S0, B, B)

    @staticmethod
    def tensor_parallel(placement: flow.placement) -> Stage:
        return Stage(placement, B, S0, S1)

    @staticmethod
    def of(layout: Layout) -> list[Stage]:
        """The stages of a strategy of layouts.py, in the order of the layers."""
        count = len(layout.stages)
        parts = [layout.at(index, count) for index in range(count)]
        kinds = [(part.data, part.columns, part.rows, part.whole) for part in parts]
        return [
            Stage(part.placement, *(where["sbp"] for where in kind))
            for part, kind in zip(parts, kinds, strict=True)
        ]

    @property
    def ranks(self) -> list[int]:
        return list(self.placement.flat_ranks)

    @property
    def replicated(self) -> Sbp:
        """Of what every rank needs, such as positions."""
        return (B,) * self.placement.ndim

    def __str__(self) -> str:
        if len(self.ranks) == 1:
            return "whole"
        return "batch split" if self.data == S0 else "weights split"


def stages(
    strategy: str, ranks: list[int], device: str, chunks: int = 1, turns: bool = False
) -> list[Stage]:
    """The stages of a strategy on these ranks, in the order of the layers.

    Data goes `chunks` times round the ranks of a pipeline, or with `turns` down and up again.
    """
    every = flow.placement(device, ranks)
    half = len(ranks) // 2
    if strategy == "single":
        return [Stage.data_parallel(flow.placement(device, ranks[:1]))]
    if strategy == "dp":
        return [Stage.data_parallel(every)]
    if strategy == "tp":
        return [Stage.tensor_parallel(every)]
    if strategy == "pp":
        once = [Stage.data_parallel(flow.placement(device, [rank])) for rank in ranks]
    else:
        first, second = ranks[:half] or ranks, ranks[half:]
        once = [
            Stage.data_parallel(flow.placement(device, first)),
            Stage.tensor_parallel(flow.placement(device, second)),
        ]
    return once + once[::-1] if turns else once * chunks


def stage_of_layer(layers: int, count: int) -> list[int]:
    """For each of the layers its stage, of so many."""
    return [layer * count // layers for layer in range(layers)]


def table(layouts: dict[str, Sequence[Stage]], layers: int) -> str:
    """Which ranks hold what, a line for each stage of each strategy."""
    rows = [("strategy", "stage", "ranks", "layout", "holds")]
    for strategy, layout in layouts.items():
        of_layer = stage_of_layer(layers, len(layout))
        for number, stage in enumerate(layout):
            blocks = [layer for layer, its in enumerate(of_layer) if its == number]
            held = ["embeddings"] if number == 0 else []
            if blocks:
                span = f"{blocks[0]}-{blocks[-1]}" if len(blocks) > 1 else f"{blocks[0]}"
                held.append(f"block{'s' * (len(blocks) > 1)} {span}")
            held += ["norm, head"] if number == len(layout) - 1 else []
            ranks = ", ".join(map(str, stage.ranks))
            what = ", ".join(held) or "nothing (fewer layers than stages)"
            rows.append((strategy if number == 0 else "", str(number), ranks, str(stage), what))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)
