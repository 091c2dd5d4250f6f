"""The strategies of resnet.py, llama.py, vit.py and unet.py: where a model lies, and how."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import TypedDict

import onefold as flow

B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)


class Where(TypedDict):
    """What layers, `flow.tensor` and `to_global` take."""

    placement: flow.placement
    sbp: flow.sbp.sbp | tuple[flow.sbp.sbp, ...]


# Strategy: what it is, and the layouts of activations (batch, ...), of weights whose outputs may
# be split, of weights that take those, and of all others. In "mixed" the ranks are a mesh.
STRATEGIES = {
    "single": ("one rank holds everything", B, B, B, B),
    "dp": ("data parallel: every rank works on its part of the batch", S0, B, B, B),
    "tp": ("tensor parallel: every rank holds a part of the layers", B, S0, S1, B),
    "mixed": ("data parallel in pairs of tensor parallel ranks", (S0, B), (B, S0), (B, S1), (B, B)),
    "zero": ("data parallel, and every rank keeps a part of each parameter", S0, S0, S0, S0),
    "pp": ("pipeline parallel: every rank holds some of the layers", B, B, B, B),
}


@dataclass(frozen=True)
class Layout:
    """Where some layers lie, and how they are laid out there."""

    strategy: str
    stages: tuple[flow.placement, ...]  # of a pipeline its ranks, else one

    @staticmethod
    def of(strategy: str, ranks: int, device: str = "cpu") -> Layout:
        """The layout of a strategy on this many ranks."""
        every = list(range(1 if strategy == "single" else ranks))
        if strategy == "pp":
            return Layout(strategy, tuple(flow.placement(device, [rank]) for rank in every))
        pair = 2 if ranks % 2 == 0 else 1
        mesh = [every[i : i + pair] for i in range(0, ranks, pair)]
        return Layout(strategy, (flow.placement(device, mesh if strategy == "mixed" else every),))

    def at(self, index: int, count: int) -> Layout:
        """The layout of one of `count` layers."""
        return replace(self, stages=(self.stages[index * len(self.stages) // count],))

    @property
    def last(self) -> Layout:
        """That of what follows the layers."""
        return replace(self, stages=self.stages[-1:])

    @property
    def placement(self) -> flow.placement:
        """The ranks of the first layer."""
        return self.stages[0]

    @property
    def data(self) -> Where:
        return self._where(1)

    @property
    def columns(self) -> Where:
        return self._where(2)

    @property
    def rows(self) -> Where:
        return self._where(3)

    @property
    def whole(self) -> Where:
        return self._where(4)

    @property
    def replicated(self) -> Where:
        """Of what every rank needs, such as the tokens to continue."""
        return {"placement": self.placement, "sbp": (B,) * self.placement.ndim}

    def _where(self, column: int) -> Where:
        return {"placement": self.placement, "sbp": STRATEGIES[self.strategy][column]}


def set_ranks(given: argparse.ArgumentParser, args: argparse.Namespace, default: int) -> None:
    """Where there is no --ranks, take one for each launched process, or the default.

    Ends the program with exit code 2 and a message when there are too few processes.
    """
    launched = flow.env.get_world_size() if flow.env.is_launched() else None
    if args.ranks is None:
        args.ranks = launched or default
    if args.ranks < 1:
        given.error(f"--ranks must be at least 1, not {args.ranks}")
    if launched is not None and args.ranks > launched:
        given.error(f"--ranks {args.ranks} needs so many processes, but {launched} were launched")
