"""Seconds of one call on a GPU, measured with CUDA events and a cold cache."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

_CACHE = 256 << 20  # bytes written before each call: more than any GPU's cache holds
_FEWEST, _MOST = 7, 200
_BUDGET = 0.2  # seconds that the calls of one measurement take together


def seconds(call: Callable[[], object]) -> float:
    """The median time of calls, each with a cold cache."""
    for _ in range(2):
        call()
    filler = torch.empty(_CACHE, dtype=torch.int8, device="cuda")
    once = statistics.median(_rounds(call, filler, 3))
    count = min(max(int(_BUDGET / max(once, 1e-6)), _FEWEST), _MOST)
    return statistics.median(_rounds(call, filler, count))


def _rounds(call: Callable[[], object], filler: torch.Tensor, count: int) -> list[float]:
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for start, end in marks:
        filler.zero_()
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / 1e3 for start, end in marks]
