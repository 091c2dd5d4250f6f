"""Program probes: programs timed step by step, and the time of ops besides their flop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from statistics import mean
from time import perf_counter

from ...engine.tensor import Tensor
from ..call_list import watchers
from ..compiled_graph import Compiled
from ..hardware import Hardware
from ..ir import ProgramStep, Run
from ..simulator import simulate
from ..simulator.step_costs import StepCosts
from .sample_step import OptimizerStep, sample_step
from .turns import Probe, Repeated, agreed, average

_WIDTHS = (128, 256)  # of the transformers whose steps are timed
_TIMES = 2  # that a program runs in a turn
_TURN = 0.01  # seconds of a program that does nearly nothing
_SMALL = 1 << 12  # bytes: of less, a step takes as long as its launch
_LEAST, _MOST = 0.1, 200.0  # times as long as bytes and flop say: else it was disturbed


class Watched:
    """A program, each of whose steps is timed in every turn."""

    def __init__(self, compiled: Compiled, inputs: Sequence[Tensor]) -> None:
        self._compiled = compiled
        self._inputs = inputs
        self._steps: dict[int, ProgramStep] = {}
        self._taken: defaultdict[int, list[float]] = defaultdict(list)
        compiled.executable.run(inputs)

    def turn(self) -> None:
        """Run the program a few times."""
        self._compiled.executable.run(self._inputs)  # after what other probes have done
        with _watching(self):
            for _ in range(_TIMES):
                self._compiled.executable.run(self._inputs)

    def watch(self, step: ProgramStep, run: Run) -> Run:
        """A replacement of `run` that measures its time."""
        self._steps[id(step)] = step
        taken = self._taken[id(step)]

        def timed(*given: object) -> object:
            start = perf_counter()
            made = run(*given)
            taken.append(perf_counter() - start)
            return made

        return timed

    def steps(self) -> Iterator[tuple[ProgramStep, float]]:
        """The steps with the average seconds of each: a program takes as long as they together."""
        return ((step, average(self._taken[key])) for key, step in self._steps.items())


class ProgramProbes:
    """Steps of small transformers, forward and backward, and their updates."""

    def __init__(self) -> None:
        tiny = sample_step(width=8, batch=1, length=2)
        samples = [sample_step(width, batch=8, length=64) for width in _WIDTHS]
        self._steps = len(tiny[0].program.steps)
        self._tiny = Watched(*tiny)
        self._launches = Repeated(partial(tiny[0].executable.run, tiny[1]), _TURN)
        self._watched = [Watched(*sample) for sample in samples]
        self._updates = [OptimizerStep(compiled) for compiled, _ in samples]
        self._updated = [Repeated(update) for update in self._updates]
        self._largest, inputs = samples[-1]
        self._whole = Repeated(partial(self._largest.executable.run, inputs))

    def probes(self) -> list[Probe]:
        """All of them, which are timed in turn."""
        return [self._tiny, self._launches, *self._watched, *self._updated, self._whole]

    def launch(self) -> float:
        """Seconds of a step with almost no work."""
        (whole,) = agreed([self._launches.seconds / self._steps])
        return whole

    def ops(self, hardware: Hardware) -> dict[str, float]:
        """By name, how many times longer ops take than their bytes and flop predict."""
        plain = StepCosts(replace(hardware, ops={}), rank=0)
        inside = min(mean(seconds for _, seconds in self._tiny.steps()), hardware.launch)
        measured: defaultdict[str, float] = defaultdict(float)
        modeled: defaultdict[str, float] = defaultdict(float)
        for watched in self._watched:
            for step, seconds in watched.steps():
                cost = plain.of(step)
                if cost.nbytes >= _SMALL:
                    measured[step.name] += max(seconds - inside, 0.0)
                    modeled[step.name] += cost.seconds - hardware.launch
        for update, probe in zip(self._updates, self._updated, strict=True):
            measured["adamw"] += probe.seconds
            modeled["adamw"] += plain.moving(update.nbytes)
        names = sorted(measured)
        times = agreed([measured[name] for name in names])
        ratios = {name: time / modeled[name] for name, time in zip(names, times, strict=True)}
        return {name: min(max(ratio, _LEAST), _MOST) for name, ratio in ratios.items()}

    def whole_step(self, hardware: Hardware) -> tuple[float, float]:
        """Seconds of a step of the largest without its update: measured, and simulated."""
        (measured,) = agreed([self._whole.seconds])
        return measured, simulate(self._largest, hardware, memory=False).step_time


@contextmanager
def _watching(watched: Watched) -> Iterator[None]:
    watchers.append(watched.watch)
    try:
        yield
    finally:
        watchers.remove(watched.watch)
