"""Searches the fastest configuration of a kernel among those that run and give the right result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from ..gpu.launch.configs import Config, Tuned

Timer = Callable[[Callable[[], object]], float]  # seconds of one call

GAIN = 0.02  # fraction of the time; below it the rule's choice stays, because of noise
_ALIKE = 2e-2  # relative tolerance: other tiles add in another order


@dataclass
class Found:
    """The best configuration for one dtype and shape class, and the times of all."""

    config: Config
    seconds: float
    rule_seconds: float
    tried: list[tuple[Config, float | str]] = field(default_factory=list)  # or why it does not run


def search(tuned: Tuned, dtype: torch.dtype, shape_class: str, timer: Timer) -> Found:
    """Measure every allowed configuration.

    Configurations that do not fit the GPU are skipped. A result that differs from that of the
    rule's configuration is an error of the kernel and raises AssertionError.
    """
    sizes = tuned.shapes[shape_class]
    rule, *others = tuned.allowed(dtype, sizes)
    call = tuned.call(rule, dtype, sizes)
    wanted = call()
    seconds = timer(call)
    found = Found(rule, seconds, seconds, [(rule, seconds)])
    for config in others:
        call = tuned.call(config, dtype, sizes)
        try:
            result = call()
        except RuntimeError as error:  # Triton's OutOfResources is one
            found.tried.append((config, str(error).split("\n")[0]))
            continue
        assert _alike(result, wanted), f"{tuned.kernel} {dtype} {sizes} is wrong with {config}"
        seconds = timer(call)
        found.tried.append((config, seconds))
        if seconds < min(found.seconds, (1 - GAIN) * found.rule_seconds):
            found.config, found.seconds = config, seconds
    return found


def _alike(result: torch.Tensor, wanted: torch.Tensor) -> bool:
    if result.shape != wanted.shape or result.dtype != wanted.dtype:
        return False
    if not wanted.dtype.is_floating_point:
        return torch.equal(result, wanted)
    off = (result.double() - wanted.double()).abs().max() if wanted.numel() else torch.zeros(())
    size = wanted.double().abs().max() if wanted.numel() else torch.ones(())
    return bool(off <= _ALIKE * size)
