"""Checks of options that several update rules share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import OnefoldValueError


def check_not_negative(who: str, **options: Any) -> None:
    """Raise OnefoldValueError for an option that is negative or NaN."""
    for name, value in options.items():
        if not value >= 0:
            raise OnefoldValueError(f"{who}: {name} must be >= 0, but got {value}")


def check_betas(who: str, betas: Sequence[float]) -> None:
    """Raise OnefoldValueError unless both are in [0, 1)."""
    if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
        raise OnefoldValueError(f"{who}: betas must be two numbers in [0, 1), but got {betas}")
