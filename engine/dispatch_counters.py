"""Counters of the dispatcher, and the warning when an op has to gather its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import user_line, warn
from .sbp import Sbp, short


@dataclass
class Counters:
    """How often plans were made, dropped, and fell back to broadcast (`profiler.dispatch`)."""

    misses: int = 0
    evictions: int = 0
    fallbacks: int = 0


counters = Counters()
_warned: set[tuple[str, str]] = set()


class FallbackWarning(UserWarning):
    """An op without a useful rule gathers its inputs."""


def note_fallback(op_name: str, present: Sequence[Sbp]) -> None:
    """Count a plan that gathers split inputs; warn once per op and call site."""
    counters.fallbacks += 1
    site = (op_name, user_line())
    if site in _warned:
        return
    _warned.add(site)
    warn(
        f"{op_name} has no signature but broadcast for inputs laid out as {short(present)}, so "
        f"they are gathered first, at {site[1]}. Box them with to_global before the call to make "
        "the communication visible in your program.",
        FallbackWarning,
    )
