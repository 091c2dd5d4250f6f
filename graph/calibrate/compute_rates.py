"""Compute rates: matrix products and memory-bound ops by size, and what ops take beside that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch

from ..call_list import watchers
from ..compiled_graph import Compiled
from ..hardware import Curve, Hardware
from ..ir import ProgramStep, Run
from ..simulator.step_costs import StepCosts
from .sample_step import optimizer_step, sample_step
from .stopwatch import Budget, fitted, seconds_of

DTYPES = (torch.float32, torch.float64)
_SIDES = (32, 64, 128, 256, 512, 768)  # of square matrices
_ELEMENTS = tuple(4**power for power in range(5, 13))  # of what is read and written
_HEADS = ((4, 32, 32), (8, 64, 32), (16, 128, 64), (16, 256, 64))  # heads, length, width of each
_WIDTHS = (128, 256)  # of the transformers whose steps are timed
_RUNS = 7
_LEAST, _MOST = 0.1, 20.0  # times as long as bytes and flop say: else it was disturbed

Tell = Callable[[str], None]


def products(dtype: torch.dtype, spend: float) -> tuple[float, Curve]:
    """Flop/s of square matrix products at best, and its share by flop."""
    seconds = []
    for side in _SIDES:
        a, b = torch.randn(side, side, dtype=dtype), torch.randn(side, side, dtype=dtype)
        seconds.append(seconds_of(partial(torch.mm, a, b), spend / len(_SIDES)))
    return fitted([2.0 * side**3 for side in _SIDES], seconds)


def memory(spend: float) -> tuple[float, Curve]:
    """Bytes per second of additions at best, and its share by bytes."""
    seconds = []
    for count in _ELEMENTS:
        a, b = torch.randn(count), torch.randn(count)
        seconds.append(seconds_of(partial(torch.add, a, b), spend / len(_ELEMENTS)))
    return fitted([12.0 * count for count in _ELEMENTS], seconds)


def attention(peak: float, spend: float) -> Curve:
    """The share of the peak that causal attention reaches, by flop."""
    points = []
    for heads, length, width in _HEADS:
        q, k, v = (torch.randn(1, heads, length, width) for _ in range(3))
        call = partial(torch.nn.functional.scaled_dot_product_attention, q, k, v, is_causal=True)
        flop = 4.0 * heads * length * length * width
        share = flop / seconds_of(call, spend / len(_HEADS)) / peak
        points.append((flop, min(share, 1.0)))
    return Curve(tuple(points))


def launch(spend: float) -> float:
    """Seconds of a step of a program that does nearly nothing."""
    compiled, inputs = sample_step(width=8, batch=1, length=2)
    run = partial(compiled.executable.run, inputs)
    run()
    run()  # the second run makes the function of all calls
    return seconds_of(run, spend) / len(compiled.program.steps)


def ops(hardware: Hardware, budget: Budget, tell: Tell) -> dict[str, float]:
    """How many times as long ops take as their bytes and flop say, by name."""
    plain = StepCosts(replace(hardware, ops={}), rank=0)
    measured: defaultdict[str, float] = defaultdict(float)
    modelled: defaultdict[str, float] = defaultdict(float)
    for width in _WIDTHS:
        budget.check()
        tell(f"steps of a transformer of width {width}")
        compiled, inputs = sample_step(width=width, batch=8, length=64)
        for step, seconds in step_times(compiled, inputs):
            expected = plain.of(step).seconds - hardware.launch
            if expected > 0:
                measured[step.name] += max(seconds - hardware.launch, 0.0)
                modelled[step.name] += expected
        update, nbytes = optimizer_step(compiled)
        measured["adamw"] += seconds_of(update, spend=0.5)
        modelled["adamw"] += plain.moving(nbytes)
    ratios = {name: measured[name] / modelled[name] for name in sorted(measured)}
    return {name: min(max(ratio, _LEAST), _MOST) for name, ratio in ratios.items()}


def step_times(compiled: Compiled, inputs: Sequence[Any]) -> Iterator[tuple[ProgramStep, float]]:
    """The steps of a program with the median seconds of each in several runs."""
    times: defaultdict[int, list[float]] = defaultdict(list)
    steps: dict[int, ProgramStep] = {}

    def watch(step: ProgramStep, run: Run) -> Run:
        steps[id(step)] = step

        def timed(*given: object) -> object:
            start = perf_counter()
            made = run(*given)
            times[id(step)].append(perf_counter() - start)
            return made

        return timed

    with _watching(watch):
        for _ in range(_RUNS):
            compiled.executable.run(inputs)
    return ((steps[key], median(each[1:])) for key, each in times.items())


@contextmanager
def _watching(watch: Callable[[ProgramStep, Run], Run]) -> Iterator[None]:
    watchers.append(watch)
    try:
        yield
    finally:
        watchers.remove(watch)
