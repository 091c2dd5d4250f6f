"""Seconds of one call on a GPU, by CUDA events, without the time of the host."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

_CACHE = 256 << 20  # bytes written before each call: more than any GPU's cache holds
_FEWEST, _MOST = 7, 200
_BUDGET = 0.2  # seconds that the calls of one measurement take together
_CYCLES = 400_000  # of the GPU's clock: about 200 microseconds of waiting
_LONGEST = 64 * _CYCLES


def seconds(call: Callable[[], object]) -> float:
    """The median time of calls, each with a cold cache."""
    for _ in range(2):
        call()
    filler = torch.empty(_CACHE, dtype=torch.int8, device="cuda")
    found = [once(call, filler.zero_) for _ in range(3)]
    count = min(max(int(_BUDGET / max(statistics.median(found), 1e-6)), _FEWEST), _MOST)
    return statistics.median(once(call, filler.zero_) for _ in range(count))


def once(call: Callable[[], object], before: Callable[[], object] | None = None) -> float:
    """The seconds of one call on the GPU, after `before`.

    The GPU is first made to wait until the host has queued the call. Where the host needed longer,
    the call is measured again after a longer wait.
    """
    cycles = _CYCLES
    while True:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if before is not None:
            before()
        torch.cuda._sleep(cycles)
        start.record()
        call()
        end.record()
        waited = not start.query()  # the GPU had not reached the call when the host was done
        end.synchronize()
        if waited or cycles >= _LONGEST:
            return float(start.elapsed_time(end)) / 1e3
        cycles *= 4
