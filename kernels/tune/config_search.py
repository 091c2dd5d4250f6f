"""Searches the fastest configuration of a kernel among those that run and give the right result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from triton.runtime.errors import TritonError

from ..gpu.launch.configs import Config, Tuned

Timer = Callable[[Callable[[], object]], float]  # seconds of one call
Outcome = float | str  # seconds, or why a configuration is not used
Form = tuple[tuple[str, int], ...]  # a configuration that can be a key

GAIN = 0.02  # fraction of the time; below it the rule's choice stays, because of noise
WRONG = "wrong result"
_ALIKE = 2e-2  # relative tolerance: other tiles add in another order


@dataclass
class Found:
    """The best configuration for one dtype and shape class, and the times of all."""

    config: Config
    seconds: float
    rule_seconds: float
    tried: list[tuple[Config, Outcome]] = field(default_factory=list)
    complete: bool = True  # whether the time sufficed for all configurations


def form_of(config: Config) -> Form:
    """A configuration as a key, in which the order of its parameters does not matter."""
    return tuple(sorted(config.items()))


def _ignore(config: Config, outcome: Outcome) -> None:
    """Keep no row."""


def search(
    tuned: Tuned,
    dtype: torch.dtype,
    shape_class: str,
    timer: Timer,
    known: Mapping[Form, Outcome] | None = None,
    keep: Callable[[Config, Outcome], None] = _ignore,
    expired: Callable[[], bool] = lambda: False,
) -> Found:
    """Measure every allowed configuration whose outcome is not `known`.

    `keep` receives each new outcome as soon as it is there. Configurations that do not compile, do
    not fit the GPU or give another result than the rule's are not used. No configuration is
    started once `expired` returns True.
    """
    known = known or {}
    sizes = tuned.shapes[shape_class]
    rule, *others = tuned.allowed(dtype, sizes)
    wanted: list[torch.Tensor] = []  # of the rule, once it is needed

    def outcome_of(config: Config) -> Outcome:
        before = known.get(form_of(config))
        if before is not None and (config != rule or not isinstance(before, str)):
            return before
        if not wanted:
            wanted.append(tuned.call(rule, dtype, sizes)().clone())
        outcome = _measure(tuned.call(config, dtype, sizes), wanted[0], timer)
        keep(config, outcome)
        return outcome

    rule_seconds = outcome_of(rule)
    if isinstance(rule_seconds, str):
        raise RuntimeError(f"{tuned.kernel} {dtype} {sizes}: the rule's choice: {rule_seconds}")
    found = Found(rule, rule_seconds, rule_seconds, [(rule, rule_seconds)])
    for config in others:
        if expired() and form_of(config) not in known:
            found.complete = False
            break
        outcome = outcome_of(config)
        found.tried.append((config, outcome))
        if isinstance(outcome, str):
            continue
        if outcome < min(found.seconds, (1 - GAIN) * found.rule_seconds):
            found.config, found.seconds = config, outcome
    return found


def _measure(call: Callable[[], torch.Tensor], wanted: torch.Tensor, timer: Timer) -> Outcome:
    try:
        result = call()
        return timer(call) if _alike(result, wanted) else WRONG
    except (RuntimeError, TritonError) as error:  # OutOfResources is no RuntimeError
        return str(error).strip().split("\n")[0] or type(error).__name__


def _alike(result: torch.Tensor, wanted: torch.Tensor) -> bool:
    if result.shape != wanted.shape or result.dtype != wanted.dtype:
        return False
    if not wanted.dtype.is_floating_point:
        return torch.equal(result, wanted)
    off = (result.double() - wanted.double()).abs().max() if wanted.numel() else torch.zeros(())
    size = wanted.double().abs().max() if wanted.numel() else torch.ones(())
    return bool(off <= _ALIKE * size)
