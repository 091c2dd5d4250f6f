"""Launched: the steps of a plan as collectives, for the one rank of this process."""

from __future__ import annotations

from .steps import Step
from .virtual import Values


def apply(step: Step, values: Values, rank: int) -> Values:
    """The shard after a step from the one before it; empty outside the step's placement."""
    raise NotImplementedError
