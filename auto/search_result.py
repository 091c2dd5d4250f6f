"""Search result: the strategy that was found, what it takes, and the runners-up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from ..distributed.comm_log import table
from ..engine.cluster import planning
from ..graph.hardware import Hardware
from ..graph.memory_traffic import readable
from ..graph.simulator import Simulation
from .strategy import Strategy
from .training_task import Task

_SHOWN = 8  # strategies that are printed


@dataclass(frozen=True)
class Priced:
    """A strategy that was compiled and simulated."""

    strategy: Strategy
    simulation: Simulation = field(repr=False)
    memory: int  # bytes of the rank that needs most
    estimate: float  # seconds, of the closed form

    @property
    def name(self) -> str:
        """The sizes of the mesh, which come first in a summary."""
        return self.strategy.summary.split(", ")[0]

    @property
    def description(self) -> str:
        """What else there is in a summary."""
        return ", ".join(self.strategy.summary.split(", ")[1:])

    @property
    def seconds(self) -> float:
        """The time of one step."""
        return self.simulation.step_time

    @property
    def tokens_per_second(self) -> float:
        """Of all ranks together."""
        found = self.simulation.tokens_per_second
        assert found is not None
        return found

    def row(self) -> tuple[str, ...]:
        """As a row of a table."""
        sizes = _milliseconds(self.seconds), f"{self.tokens_per_second:,.0f}"
        mfu = f"{100 * self.simulation.mfu:.1f}%"
        return self.strategy.summary, *sizes, mfu, readable(self.memory)


@dataclass(frozen=True)
class Result:
    """What a search found. It prints; `strategy` is what to use."""

    best: Priced
    runners_up: tuple[Priced, ...]  # the fastest first
    hardware: Hardware
    budget: int  # bytes of each rank
    lower_bound: float  # seconds that no candidate's step is below
    candidates: int
    unfit: int  # candidates that need more memory
    beaten: int  # that were not simulated, since their bounds are above the best
    failed: tuple[tuple[str, str], ...]  # strategies that cannot be compiled, and why
    took: float  # seconds of the search
    task: Task = field(repr=False)
    one_stage: bool = False  # whether values are read together that stages would have apart

    @property
    def strategy(self) -> Strategy:
        """The fastest strategy that fits."""
        return self.best.strategy

    @property
    def seconds(self) -> float:
        """The time of one step."""
        return self.best.seconds

    @property
    def tokens_per_second(self) -> float:
        """Of all ranks together."""
        return self.best.tokens_per_second

    @property
    def memory(self) -> int:
        """Bytes of the rank that needs most."""
        return self.best.memory

    @property
    def optimal(self) -> bool:
        """Whether no other candidate can be faster."""
        return self.lower_bound >= self.seconds

    def report(self, path: str | Path, memory: bool = True) -> None:
        """Write the page of `nn.Graph.report` for the best strategy, with the runners-up.

        Its devices have the memory that the search was given. Without `memory` the page has no
        curves of memory, which take longest. Raises OnefoldValueError for a path that cannot be
        written.
        """
        task, hardware = self.task, replace(self.hardware, memory_bytes=self.budget)
        with planning(self.strategy.size):
            step = task.step(self.strategy, task.build_model(), task.rows)
            searched = self.best, *self.runners_up
            step.report(path, hardware, tokens=task.tokens, memory=memory, searched=searched)

    def __str__(self) -> str:
        best = self.best
        proof = "no candidate is faster"
        if not self.optimal:
            proof = f"no candidate is below {_milliseconds(self.lower_bound)}"
        simulated = 1 + len(self.runners_up)
        left = self.candidates - self.unfit - self.beaten - simulated - len(self.failed)
        counts = [
            f"{self.candidates:,} candidates: {simulated} simulated",
            f"{self.unfit:,} do not fit",
            f"{self.beaten:,} cannot be faster",
            f"{len(self.failed)} cannot be compiled",
            f"{max(left, 0):,} estimated only",
        ]
        lines = [
            f"on {self.hardware.name}: {best.strategy.summary}",
            f"step time   {_milliseconds(best.seconds)}; {proof}",
            f"tokens/s    {best.tokens_per_second:,.0f}",
            f"MFU         {100 * best.simulation.mfu:.1f}%",
            f"memory      {readable(best.memory)} of {readable(self.budget)}",
            ", ".join(counts),
        ]
        if self.one_stage:
            lines.append(
                "no pipelines: outside of its modules the model or the loss reads values together "
                "that stages would have apart"
            )
        rows: list[tuple[str, ...]] = [("strategy", "step time", "tokens/s", "MFU", "memory")]
        rows += [each.row() for each in (best, *self.runners_up)[:_SHOWN]]
        return "\n".join([*lines, "", table(rows)])


def _milliseconds(seconds: float) -> str:
    """A time with four digits.

    >>> _milliseconds(1.23456), _milliseconds(0.000123456)
    ('1,235 ms', '0.1235 ms')
    """
    time = 1e3 * seconds
    return f"{time:,.0f} ms" if time >= 1000 else f"{time:.4g} ms"
