"""Debug output of a graph's compilation, by level and rank."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

from ..distributed.world import world
from ..engine.meta import Meta
from ..errors import OnefoldTypeError, user_line, user_stack
from .ir import Program, describe
from .memory.memory_plan import plan_memory
from .program_text import operator, parts_of
from .setting_checks import integer, switch


@dataclass(frozen=True)
class Debug:
    """The settings of `Graph.debug`, which explains the levels, and the output."""

    name: str = ""  # the graph's
    level: int = -1
    ranks: tuple[int, ...] = (0,)
    depth: int = 2
    only_user: bool = True
    op_lines: bool = False
    _times: list[float] = field(default_factory=list, compare=False)

    @property
    def lines(self) -> Callable[[], str]:
        """The function that gives the line of a step in the user's program."""
        return partial(user_stack, self.depth, self.only_user) if self.op_lines else user_line

    def start(self, metas: Sequence[Meta]) -> None:
        """Print that compiling begins, for inputs of these metas."""
        self._times[:] = [perf_counter()]
        self._write(0, f"building for ({', '.join(map(describe, metas))})")

    def stage(self, what: str, program: Program) -> None:
        """Print that a stage of compiling is done."""
        self._write(0, f"{what}: {len(program.steps)} steps, {self._seconds():.3f} s")

    def finish(self, program: Program) -> None:
        """Print the result."""
        self._write(0, f"compiled {len(program.steps)} steps in {self._seconds():.3f} s")
        for path, part in parts_of(program).items() if self._is_enabled(1) else ():
            counts = f"{len(part.forward)} operators, {len(part.backward)} in backward"
            ends = [
                ", ".join(describe(value.meta) for value in values.values())
                for values in (part.inputs, part.outputs)
            ]
            flow = f": ({ends[0]}) -> ({ends[1]})" if path else ""
            self._write(1, f"(MODULE:{path or 'build'}) {counts}{flow}")
            for step in [*part.forward, *part.backward] if self.level >= 2 else ():
                self._write(2, "  " + operator(step, self.op_lines))
        if self._is_enabled(3):
            self._write(3, f"the program:\n{program}")
            placed = [v.meta.placement for step in program.steps for v in step.outputs]
            ranks = {rank for place in placed if place is not None for rank in place.flat_ranks}
            for rank in sorted(ranks or {0}):
                self._write(3, f"rank {rank}: {plan_memory(program, rank)}")

    def _seconds(self) -> float:
        return perf_counter() - self._times[0]

    def _is_enabled(self, level: int) -> bool:
        here = -1 in self.ranks or (world().rank or 0) in self.ranks
        return self.level >= level and here

    def _write(self, level: int, text: str) -> None:
        if self._is_enabled(level):
            sys.stdout.write(f"(GRAPH:{self.name}) {text}\n")


def debug_settings(
    level: object, ranks: object, depth: object, only_user: object, op_lines: object
) -> Debug:
    """The settings that a user gave. Raises OnefoldTypeError or OnefoldValueError for bad ones."""
    given = [0] if ranks is None else [ranks] if isinstance(ranks, int) else ranks
    if not isinstance(given, (list, tuple)):
        raise OnefoldTypeError(f"debug: ranks must be integers, -1 (all) or None, not {ranks!r}")
    return Debug(
        "",
        integer("debug: v_level", level),
        tuple([integer("debug: ranks", rank) for rank in given]),
        integer("debug: max_py_stack_depth", depth, least=1),
        switch("debug: only_user_py_stack", only_user),
        switch("debug: op_repr_with_py_stack", op_lines),
    )
