"""Compute rates: matrix products and memory-bound ops by size, and what ops take beside that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle
from statistics import mean, median
from time import perf_counter
from typing import Any, TypeAlias

import torch

from ..call_list import watchers
from ..compiled_graph import Compiled
from ..hardware import Curve, Hardware
from ..ir import ProgramStep, Run
from ..simulator import simulate
from ..simulator.step_costs import StepCosts
from .link_rates import agreed
from .sample_step import optimizer_step, sample_step
from .stopwatch import fitted, seconds_of, seconds_of_each

DTYPES = (torch.float32, torch.float64)
_SIDES = (32, 64, 128, 256, 512, 768)  # of square matrices
_SIDE, _NARROW = 512, 16  # of a matrix that two thin ones make
_ELEMENTS = tuple(4**power for power in range(5, 12))  # of what is read and written
_HEADS = ((4, 32, 32), (8, 64, 32), (16, 128, 64), (16, 256, 64))  # heads, length, width of each
_WIDTHS = (128, 256)  # of the transformers whose steps are timed
_PASSED = 1 << 26  # bytes that pass through the caches until a value is read again
_RUNS = 4  # at least; the first one warms up
_SMALL = 1 << 12  # bytes: of less, a step takes as long as its launch
_LEAST, _MOST = 0.1, 200.0  # times as long as bytes and flop say: else it was disturbed

Tell: TypeAlias = Callable[[str], None]
Call: TypeAlias = Callable[[], object]


def products(dtype: torch.dtype, spend: float) -> tuple[float, Curve]:
    """Flop/s of square matrix products at best, and its share by flop."""

    def product(side: int) -> Call:
        a, b = torch.randn(side, side, dtype=dtype), torch.randn(side, side, dtype=dtype)
        return partial(torch.mm, a, b)

    seconds = agreed(seconds_of_each(list(map(product, _SIDES)), spend))
    return fitted([2.0 * side**3 for side in _SIDES], seconds)


def narrow(peak: float, curve: Curve, spend: float) -> float:
    """The smallest dim of a product that takes twice as long as its flop say."""
    a, b = torch.randn(_SIDE, _NARROW), torch.randn(_NARROW, _SIDE)
    flop = 2.0 * _SIDE * _SIDE * _NARROW
    (seconds,) = agreed([seconds_of(partial(torch.mm, a, b), spend)])
    return _NARROW * max(seconds * peak * curve.at(flop) / flop - 1.0, 0.0)


def memory(spend: float) -> tuple[float, Curve]:
    """Bytes per second of additions at best, and its share by bytes.

    Other values are read and written between two uses of one, as in a program.
    """

    def addition(count: int) -> Call:
        apart = max(1, _PASSED // (12 * count))
        first, second, result = torch.randn(3, apart, count)
        turns = cycle(zip(first, second, result, strict=True))

        def add() -> None:
            a, b, made = next(turns)
            torch.add(a, b, out=made)

        return add

    seconds = agreed(seconds_of_each(list(map(addition, _ELEMENTS)), spend))
    return fitted([12.0 * count for count in _ELEMENTS], seconds)


def attention(peak: float, spend: float) -> Curve:
    """The share of the peak that causal attention reaches, by flop."""

    def call(heads: int, length: int, width: int) -> Call:
        q, k, v = (torch.randn(1, heads, length, width) for _ in range(3))
        return partial(torch.nn.functional.scaled_dot_product_attention, q, k, v, is_causal=True)

    seconds = agreed(seconds_of_each([call(*each) for each in _HEADS], spend))
    flop = [4.0 * heads * length * length * width for heads, length, width in _HEADS]
    shares = (min(f / s / peak, 1.0) for f, s in zip(flop, seconds, strict=True))
    return Curve(tuple(zip(flop, shares, strict=True)))


def launch(spend: float) -> tuple[float, float]:
    """Seconds of a step of a program that does nearly nothing, and what its kernel has of them."""
    compiled, inputs = sample_step(width=8, batch=1, length=2)
    run = partial(compiled.executable.run, inputs)
    run()
    run()  # the second run makes the function of all calls
    whole = seconds_of(run, spend / 2) / len(compiled.program.steps)
    inside = mean(seconds for _, seconds in step_times(compiled, inputs, spend / 2))
    whole, inside = agreed([whole, inside])
    return whole, min(inside, whole)


def ops(hardware: Hardware, inside: float, spend: float, tell: Tell) -> dict[str, float]:
    """How many times as long ops take as their bytes and flop say, by name.

    `inside` are the seconds of a kernel that does nearly nothing.
    """
    plain = StepCosts(replace(hardware, ops={}), rank=0)
    measured: defaultdict[str, float] = defaultdict(float)
    modelled: defaultdict[str, float] = defaultdict(float)
    for width in _WIDTHS:
        tell(f"steps of a transformer of width {width}")
        compiled, inputs = sample_step(width=width, batch=8, length=64)
        for step, seconds in step_times(compiled, inputs, spend):
            cost = plain.of(step)
            if cost.nbytes >= _SMALL:
                measured[step.name] += max(seconds - inside, 0.0)
                modelled[step.name] += cost.seconds - hardware.launch
        update, nbytes = optimizer_step(compiled)
        measured["adamw"] += seconds_of(update, spend)
        modelled["adamw"] += plain.moving(nbytes)
    names = sorted(measured)
    times = agreed([measured[name] for name in names])
    ratios = {name: time / modelled[name] for name, time in zip(names, times, strict=True)}
    return {name: min(max(ratio, _LEAST), _MOST) for name, ratio in ratios.items()}


def whole_step(hardware: Hardware, spend: float) -> tuple[float, float]:
    """Seconds of a step of a transformer without its update: measured, and simulated."""
    compiled, inputs = sample_step(width=_WIDTHS[-1], batch=8, length=64)
    run = partial(compiled.executable.run, inputs)
    run()
    (measured,) = agreed([seconds_of(run, spend)])
    return measured, simulate(compiled, hardware, memory=False).step_time


def step_times(
    compiled: Compiled, inputs: Sequence[Any], spend: float
) -> Iterator[tuple[ProgramStep, float]]:
    """The steps of a program with the usual seconds of each in several runs."""
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
        end = perf_counter() + spend
        runs = 0
        while runs < _RUNS or perf_counter() < end:
            compiled.executable.run(inputs)
            runs += 1
    return ((steps[key], median(each[1:])) for key, each in times.items())


@contextmanager
def _watching(watch: Callable[[ProgramStep, Run], Run]) -> Iterator[None]:
    watchers.append(watch)
    try:
        yield
    finally:
        watchers.remove(watch)
